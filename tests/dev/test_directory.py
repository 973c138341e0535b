"""The data directory, ports, and what `bringup dev` says when it cannot have them."""

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest

from cli.dev.data import DataDirectory
from cli.dev.errors import DevError
from cli.dev.ports import LOOPBACK, PortTakenError, choose_port, free_port


async def bringup_dev(*arguments: str) -> tuple[int, str]:
    """Runs the command without machines; returns its exit status and all it said."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli.main", "dev", "--machines", "0", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "COLUMNS": "200"},
    )
    output, _ = await asyncio.wait_for(process.communicate(), 30)
    return process.returncode or 0, output.decode()


def test_a_directory_of_someone_else_is_neither_used_nor_wiped(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("three years")
    with pytest.raises(DevError, match="was not made by bringup dev"):
        DataDirectory(tmp_path).open()
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.txt"]


def test_wiping_removes_all_state_but_follows_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    data = DataDirectory(tmp_path / "data")
    data.open()
    (data.logs / "old.log").touch()
    (data.root / "link").symlink_to(outside)
    data.wipe()
    data.close()
    assert (outside / "kept").exists()
    assert not (data.root / "link").is_symlink()
    assert not (data.logs / "old.log").exists()
    DataDirectory(tmp_path / "data").open()


def test_the_directory_is_closed_to_others(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path / "data")
    data.open()
    data.close()
    assert data.root.stat().st_mode & 0o777 == 0o700


def test_a_free_port_lies_outside_the_range_of_outgoing_connections() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(free_port() < first for _ in range(20))


def test_a_taken_port_is_an_error_that_names_its_option() -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTakenError, match=rf"port {port} .* --ui-port"):
            choose_port(port, "--ui-port")


async def test_a_second_dev_on_one_data_directory_says_so(tmp_path: Path) -> None:
    data = DataDirectory(tmp_path / "data")
    data.open()
    try:
        status, said = await bringup_dev("--data-dir", str(data.root), "--reset")
    finally:
        data.close()
    assert status == 1
    assert f"already runs on {data.root} (process {os.getpid()})" in said


async def test_dev_on_a_taken_port_names_the_option_and_leaves_nothing(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = str(taken.getsockname()[1])
        status, said = await bringup_dev("--data-dir", str(tmp_path / "data"), "--api-port", port)
    assert status == 1
    assert f"port {port}" in said
    assert "--api-port" in said
    assert not (tmp_path / "data" / "postgres").exists()
