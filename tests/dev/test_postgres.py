"""The embedded PostgreSQL: real servers, really killed."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from cli.dev.cluster import binaries
from cli.dev.identity import ProcessIdentity, working_in
from cli.dev.lock import DirectoryInUseError
from cli.dev.ports import is_free
from cli.dev.postgres import EmbeddedPostgres
from cli.dev.process import EventKind
from tests.dev.conftest import Events, eventually

BUSY = "SELECT count(*) FROM generate_series(1, 100000000000)"


async def connect(url: str) -> Any:
    return await asyncpg.connect(url.replace("+asyncpg", ""))


async def run(url: str, *statements: str) -> Any:
    """Runs statements and returns the value of the last one."""
    connection = await connect(url)
    try:
        for statement in statements[:-1]:
            await connection.execute(statement)
        return await connection.fetchval(statements[-1])
    finally:
        await connection.close()


async def test_a_server_in_a_private_folder_keeps_its_data_over_a_stop(private_folder: Path) -> None:
    server = EmbeddedPostgres(private_folder, durable=False)
    await server.start()
    pid, port = server.pid, server.port
    await run(server.owner_url, "CREATE TABLE kept (n int)", "INSERT INTO kept VALUES (7) RETURNING n")
    await server.stop()
    assert pid is not None
    assert ProcessIdentity.of(pid) is None
    assert is_free(port)

    again = EmbeddedPostgres(private_folder, durable=False)
    await again.start()
    try:
        assert await run(again.owner_url, "SELECT n FROM kept") == 7
    finally:
        await again.stop()


async def test_a_server_runs_from_a_checkout_that_only_its_owner_may_enter(
    private_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = private_folder.parent / "pginstall"
    private.symlink_to(binaries().parent)
    for module in ("cli.dev.cluster", "cli.dev.postgres"):
        monkeypatch.setattr(f"{module}.binaries", lambda: private / "bin")
    server = EmbeddedPostgres(private_folder, durable=False)
    await server.start()
    try:
        assert await run(server.owner_url, "SELECT 1") == 1
    finally:
        await server.stop()


async def test_a_killed_server_comes_back_although_a_busy_backend_outlived_it(
    tmp_path: Path, events: Events
) -> None:
    server = EmbeddedPostgres(tmp_path, durable=False, on_event=events)
    await server.start()
    try:
        await run(server.owner_url, "CREATE TABLE kept (n int)", "INSERT INTO kept VALUES (7) RETURNING n")
        killed, port = server.pid, server.port
        assert killed is not None
        connection = await connect(server.app_url)
        backend = ProcessIdentity.of(await connection.fetchval("SELECT pg_backend_pid()"))
        busy = asyncio.create_task(connection.fetchval(BUSY))
        await eventually(lambda: backend is not None and cpu_ticks(backend.pid) > 2)
        os.kill(killed, signal.SIGKILL)

        await events.until(EventKind.BACK)
        assert server.pid not in (None, killed)
        assert server.port == port
        assert backend is not None
        assert not backend.alive()
        assert await run(server.owner_url, "SELECT n FROM kept") == 7
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await busy
    finally:
        await server.stop()
    assert working_in(tmp_path / "cluster") == []


async def test_a_forced_stop_leaves_no_backend_and_the_next_start_recovers(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path, durable=False)
    await server.start()
    await run(server.owner_url, "CREATE TABLE kept (n int)", "INSERT INTO kept VALUES (7) RETURNING n")
    await server.stop(force=True)
    assert working_in(tmp_path / "cluster") == []

    # A number in postmaster.pid that means some other living process must not block the start either.
    (tmp_path / "cluster" / "postmaster.pid").write_text(f"{os.getpid()}\n")
    again = EmbeddedPostgres(tmp_path, durable=False)
    await again.start()
    try:
        assert await run(again.owner_url, "SELECT n FROM kept") == 7
    finally:
        await again.stop()


async def test_a_second_server_on_the_same_folder_is_refused(postgres_server: EmbeddedPostgres) -> None:
    with pytest.raises(DirectoryInUseError, match=str(os.getpid())):
        await EmbeddedPostgres(postgres_server.directory).start()
    assert await run(postgres_server.app_url, "SELECT 1") == 1


async def test_the_application_owns_nothing_and_may_not_change_the_schema(
    postgres_server: EmbeddedPostgres,
) -> None:
    urls = await postgres_server.create_database('odd "name"; %')
    assert await run(urls.owner, "CREATE TABLE t (n int)", "SELECT current_database()") == 'odd "name"; %'
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await run(urls.app, "CREATE TABLE u (n int)", "SELECT 1")
    await postgres_server.drop_database('odd "name"; %')
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await connect(urls.app)


async def test_a_wrong_password_is_refused(postgres_server: EmbeddedPostgres) -> None:
    password = postgres_server.app_url.split(":")[2].split("@")[0]
    with pytest.raises(asyncpg.InvalidPasswordError):
        await connect(postgres_server.app_url.replace(password, "guessed"))
    assert (postgres_server.directory / "passwords.json").stat().st_mode & 0o777 == 0o600


async def test_it_listens_on_loopback_only(postgres_server: EmbeddedPostgres) -> None:
    assert await run(postgres_server.app_url, "SHOW listen_addresses") == "127.0.0.1"
    assert await run(postgres_server.app_url, "SHOW max_connections") == "200"


def cpu_ticks(pid: int) -> int:
    """Processor time that a process has used, in clock ticks: proof that it works rather than waits."""
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11])
