"""PostgreSQL from the embedded wheel, as a child process with a data folder of its own.

The wheel's binaries are run directly: its Python API creates a system user, opens every folder above the
data for everybody, and ends the server with the last Python process.
"""

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg

from cli.dev.cluster import APP, OWNER, SUPERUSER, binaries, load_passwords, make_cluster, privileges
from cli.dev.environment import clean_environment
from cli.dev.errors import DevError
from cli.dev.identity import end, working_in
from cli.dev.lock import DirectoryLock
from cli.dev.ports import LOOPBACK, free_port
from cli.dev.process import Child, ChildError, ChildEvent, Program

DATABASE = "bringup"
_PORT_TRIES = 4


@dataclass(frozen=True)
class DatabaseUrls:
    """How to reach one database, as SQLAlchemy URLs for asyncpg: as its owner and as the application."""

    owner: str
    app: str


class EmbeddedPostgres:
    """A PostgreSQL server on loopback whose whole state lies in `directory`.

    One server per directory (`DirectoryInUseError` otherwise). `port` 0 chooses one. With `durable` off,
    a power loss may cost data; a killed process never does. Restarted on the same port when it dies.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        durable: bool = True,
        log: Path | None = None,
        on_event: Callable[[ChildEvent], None] = lambda event: None,
    ) -> None:
        self.directory = directory
        self.port = port
        self._chosen = port == 0
        self._durable = durable
        self._log = log or directory / "postgres.log"
        self._on_event = on_event
        self._cluster = directory / "cluster"
        self._lock = DirectoryLock(directory)
        self._child: Child | None = None
        self._passwords: dict[str, str] = {}

    @property
    def pid(self) -> int | None:
        """The postmaster's process, as `Child.served` says it; None when it was not started."""
        return self._child.served if self._child else None

    @property
    def owner_url(self) -> str:
        """The URL of database `bringup` for its owner, who may change the schema."""
        return self.urls(DATABASE).owner

    @property
    def app_url(self) -> str:
        """The URL of database `bringup` for the application, which owns nothing."""
        return self.urls(DATABASE).app

    def urls(self, database: str) -> DatabaseUrls:
        """The URLs of any database of this server."""
        return DatabaseUrls(self._url(OWNER, database), self._url(APP, database))

    async def start(self) -> None:
        """Makes the cluster if there is none, starts the server, makes roles and database `bringup`.

        Raises `PostgresMissingError`, `DirectoryInUseError`, or `ChildError` with the last lines of the log.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock.acquire()
        try:
            self._passwords = load_passwords(self.directory / "passwords.json")
            await asyncio.to_thread(
                make_cluster, self._cluster, self._passwords[SUPERUSER], durable=self._durable
            )
            await self._start_server()
            await self._make_roles()
            await self.create_database(DATABASE)
        except BaseException:
            await self.stop(force=True)
            raise

    async def stop(self, *, force: bool = False) -> None:
        """A fast stop: open transactions are rolled back, clients cut off. Harmless when it is down."""
        if self._child is not None:
            await self._child.stop(force=force)
            if force:
                await asyncio.to_thread(self._recover)
        self._child = None
        self._lock.release()

    def kill(self) -> None:
        """SIGKILL to the server, for a stop that must not wait; committed data stays."""
        if self._child is not None:
            self._child.kill()

    async def create_database(self, name: str) -> DatabaseUrls:
        """Makes a database owned by `bringup_owner` that `bringup_app` may connect to; repeatable."""
        connection = await self._connect()
        try:
            if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", name):
                await _execute(connection, "CREATE DATABASE %I OWNER %I", name, OWNER)
            await _execute(connection, "REVOKE ALL ON DATABASE %I FROM PUBLIC", name)
            await _execute(connection, "GRANT CONNECT, TEMPORARY ON DATABASE %I TO %I", name, APP)
        finally:
            await connection.close()
        return self.urls(name)

    async def drop_database(self, name: str) -> None:
        """Removes a database and cuts off its clients; harmless when it does not exist."""
        connection = await self._connect()
        try:
            await _execute(connection, "DROP DATABASE IF EXISTS %I WITH (FORCE)", name)
        finally:
            await connection.close()

    def _url(self, role: str, database: str) -> str:
        login = f"{role}:{self._passwords[role]}"
        return f"postgresql+asyncpg://{login}@{LOOPBACK}:{self.port}/{quote(database, safe='')}"

    async def _start_server(self) -> None:
        for attempt in range(1, _PORT_TRIES + 1):
            self.port = free_port() if self._chosen else self.port
            self._child = Child(self._program(), self._on_event)
            try:
                return await self._child.start()
            except ChildError as failure:
                taken = any("Address already in use" in line for line in failure.lines)
                if not (taken and self._chosen and attempt < _PORT_TRIES):
                    raise

    def _program(self) -> Program:
        return Program(
            name="postgres",
            argv=[
                str(binaries() / "postgres"),
                "-D",
                str(self._cluster),
                "-p",
                str(self.port),
                *self._settings(),
            ],
            environment=clean_environment(),
            log=self._log,
            pid_file=self.directory / "postgres.pid",
            serves=self._serves,
            serves_within=60.0,  # recovery after a crash replays the log first
            prepare=self._recover,
            stop_signal=signal.SIGINT,
            stop_grace=5.0,
            orphaned=signal.SIGINT,  # a fast stop also ends the backends, which SIGKILL would not
            privileges=privileges(),
            directory=self._cluster,
        )

    def _settings(self) -> list[str]:
        settings = {
            "listen_addresses": LOOPBACK,
            "unix_socket_directories": "",
            "max_connections": "200",
            "shared_buffers": "128MB",
            "fsync": "on" if self._durable else "off",
            "log_timezone": "UTC",
            "timezone": "UTC",
        }
        return [argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")]

    async def _serves(self) -> bool:
        try:
            connection = await self._connect()
        except asyncpg.InvalidPasswordError:
            raise DevError(f"PostgreSQL refuses the passwords in {self.directory}; use --reset") from None
        except (OSError, asyncpg.PostgresError, TimeoutError):
            return False
        await connection.close()
        return True

    async def _connect(self) -> Any:
        return await asyncpg.connect(
            host=LOOPBACK,
            port=self.port,
            user=SUPERUSER,
            password=self._passwords[SUPERUSER],
            database="postgres",
            timeout=5,
            ssl=False,
        )

    def _recover(self) -> None:
        """Clears what a killed server left: backends that outlived it, and its stale pid file.

        A busy backend keeps the shared memory, and the next server refuses to start. Backends are known
        by their working directory, the cluster; the lock on `directory` says that no server of ours runs.
        """
        for backend in working_in(self._cluster):
            end(backend, signal.SIGQUIT, grace=1.0)
        (self._cluster / "postmaster.pid").unlink(missing_ok=True)

    async def _make_roles(self) -> None:
        connection = await self._connect()
        try:
            for role in (OWNER, APP):
                if not await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", role):
                    await _execute(connection, "CREATE ROLE %I", role)
                await _execute(connection, "ALTER ROLE %I LOGIN PASSWORD %L", role, self._passwords[role])
        finally:
            await connection.close()


async def _execute(connection: Any, statement: str, *values: str) -> None:
    """Runs a statement that takes no parameters, its names and literals quoted by the server."""
    arguments = ", ".join(f"${number}::text" for number in range(2, len(values) + 2))
    await connection.execute(await connection.fetchval(f"SELECT format($1, {arguments})", statement, *values))
