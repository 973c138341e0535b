"""`bringup dev` as a person runs it, without machines: every part killed, stopped at odd moments."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from typing import Any

import httpx

from cli.dev.identity import ProcessIdentity
from tests.dev.conftest import eventually

STOP_SECONDS = 10.0
ROLES = ("api", "worker", "temporal", "postgres")


class Dev:
    """One run of `bringup dev` on a data directory."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.ready_file = folder / "ready.json"
        self._process: Process | None = None

    async def start(self) -> None:
        ports = ["--api-port", "0", "--temporal-port", "0", "--ui-port", "0", "--machines", "0"]
        files = ["--data-dir", str(self.data), "--ready-file", str(self.ready_file)]
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "cli.main", "dev", *ports, *files), stdin=DEVNULL, stdout=PIPE
        )

    async def ready(self) -> dict[str, Any]:
        await eventually(self.ready_file.exists, within=60)
        return dict(json.loads(self.ready_file.read_text()))

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Stops it; returns its exit status and what it said. Fails when that takes too long."""
        assert self._process is not None
        self._process.send_signal(number)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                said, _ = await self._process.communicate()
        except TimeoutError:
            self._process.kill()
            raise AssertionError(f"it did not stop within {STOP_SECONDS:g} s") from None
        return self._process.returncode or 0, said.decode()

    def left(self) -> list[str]:
        """The command lines of processes that know the data directory, from arguments or environment."""
        return [line for line in map(self._of_ours, os.listdir("/proc")) if line]

    def _of_ours(self, number: str) -> str:
        if not number.isdigit() or ProcessIdentity.of(int(number)) is None:
            return ""
        try:
            arguments = Path(f"/proc/{number}/cmdline").read_bytes()
            environment = Path(f"/proc/{number}/environ").read_bytes()
        except OSError:
            return ""
        return arguments.decode() if str(self.data).encode() in arguments + environment else ""


def healthy(api: str) -> bool:
    try:
        return httpx.get(f"{api}/healthz").is_success
    except httpx.TransportError:
        return False


async def test_every_part_that_is_killed_comes_back_and_the_next_start_goes_on(tmp_path: Path) -> None:
    dev = Dev(tmp_path)
    await dev.start()
    first = await dev.ready()
    assert healthy(first["api"])
    assert dev.ready_file.stat().st_mode & 0o777 == 0o600
    for role in ROLES:
        os.kill(first["pids"][role], signal.SIGKILL)

    def all_back() -> bool:
        pids = json.loads(dev.ready_file.read_text())["pids"]
        return all(pids[role] not in (None, first["pids"][role]) for role in ROLES)

    await eventually(all_back, within=30)
    await eventually(lambda: healthy(first["api"]))
    status, said = await dev.stop()
    assert status == 0, said
    assert all(f"{role:<10} is back as process" in said for role in ROLES), said
    assert dev.left() == []
    assert not dev.ready_file.exists()

    await dev.start()
    second = await dev.ready()
    status, said = await dev.stop(signal.SIGINT)
    assert status == 0, said
    assert dev.left() == []
    assert [second[key] for key in ("token", "tenant", "site")] == [
        first[key] for key in ("token", "tenant", "site")
    ]


async def test_a_stop_while_it_comes_up_leaves_nothing(tmp_path: Path) -> None:
    for moment in ("postgres/passwords.json", "postgres/cluster/postmaster.pid", "logs/api.log"):
        folder = tmp_path / moment.replace("/", "-")
        folder.mkdir()
        dev = Dev(folder)
        await dev.start()
        await eventually((dev.data / moment).exists, within=60)
        status, said = await dev.stop()
        assert status == 0, said
        assert dev.left() == []
