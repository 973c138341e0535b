"""One run of `bringup dev`: everything brought up in order, kept up, and taken down in order."""

import asyncio
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import httpx

from cli.dev.data import DataDirectory
from cli.dev.errors import DevError
from cli.dev.joining import Joining
from cli.dev.leftovers import end_processes, free_shared_memory
from cli.dev.machines import Machines
from cli.dev.parts import Parts, Ports
from cli.dev.process import ChildEvent, EventKind, end_task
from cli.dev.ready import Ready, write_ready
from cli.dev.screen import Screen
from cli.dev.services import sandbox_environment
from cli.dev.site import SITE, TENANT, Fleet, SandboxMachine


@dataclass(frozen=True)
class Options:
    """The options of `bringup dev`."""

    data_dir: Path
    ports: Ports
    machines: int
    gpus: int | None
    reset: bool
    ready_file: Path | None


class Stack:
    """Owns the data directory for the time of `run`."""

    def __init__(self, options: Options, screen: Screen) -> None:
        self._options = options
        self._screen = screen
        self._data = DataDirectory(options.data_dir)
        self._parts: Parts | None = None
        self._stop = asyncio.Event()
        self._found: tuple[str, str] | None = None  # token and site, once everything answers

    async def run(self) -> None:
        """Returns after SIGINT, SIGTERM or SIGHUP, with everything taken down.

        Raises what kept it from coming up, with everything taken down as well.
        """
        ready_file = self._options.ready_file
        if ready_file is not None and not ready_file.parent.is_dir():
            raise DevError(f"--ready-file: there is no folder {ready_file.parent}")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        self._data.open()
        self._remove_ready_file()
        coming_up = asyncio.create_task(self._bring_up())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({coming_up, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if coming_up.done():
                coming_up.result()
                await stopping
        except BaseExceptionGroup as group:
            raise _first(group) from None
        finally:
            stopping.cancel()
            await end_task(coming_up)
            await self._take_down()
            self._data.close()

    async def _bring_up(self) -> None:
        for name in await end_processes(self._data):
            self._screen.line(name, "was left by a bringup dev that was killed; ended it", "yellow")
        if self._options.reset:
            await self._reset()
        parts = self._parts = Parts(self._data, self._options.ports, self._on_event)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._start_database(parts))
            group.create_task(self._start_temporal(parts))
            powering_on = group.create_task(self._start_machines(parts))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._start_api(parts))
            group.create_task(self._start_worker(parts))
        token = self._data.token.read_text().strip()
        async with httpx.AsyncClient(base_url=parts.api_url, timeout=30.0) as client:
            with self._screen.timed("site", "machines ready"):
                site = await Joining(Fleet(client, TENANT, token), self._screen).bring_up(
                    powering_on.result()
                )
        self._found = (token, site)
        self._write_ready_file()
        self._announce(parts, token)

    async def _reset(self) -> None:
        await free_shared_memory(self._data)
        if self._data.sandbox.exists():
            await Machines(self._data, sandbox_environment(self._data)).down()
        await asyncio.to_thread(self._data.wipe)
        self._screen.line("reset", f"wiped {self._data.root}")

    async def _start_database(self, parts: Parts) -> None:
        with self._screen.timed("postgres", "up") as words:
            await parts.postgres.start()
            words.append(f"127.0.0.1:{parts.postgres.port}")
        with self._screen.timed("database", "migrated"):
            await parts.migrate()

    async def _start_temporal(self, parts: Parts) -> None:
        with self._screen.timed("temporal", "up") as words:
            await parts.temporal.start()
            words.append(parts.temporal.address)

    async def _start_machines(self, parts: Parts) -> list[SandboxMachine]:
        if self._options.machines == 0:
            return []
        with self._screen.timed("machines", "on") as words:
            machines = await parts.machines.up(self._options.machines, self._options.gpus)
            words.append(f"{len(machines)}, {machines[0].address} to {machines[-1].address}")
            if machines[0].gpus:
                words.append(f"{machines[0].gpus} simulated GPUs each")
        return machines

    async def _start_api(self, parts: Parts) -> None:
        with self._screen.timed("api", "up") as words:
            await parts.start_api()
            words.append(parts.api_url)

    async def _start_worker(self, parts: Parts) -> None:
        with self._screen.timed("worker", "up"):
            await parts.start_worker()

    async def _take_down(self) -> None:
        began = time.monotonic()
        self._found = None
        if self._parts is not None:
            for failure in await self._parts.stop():
                self._screen.error(failure)
        self._remove_ready_file()
        self._screen.line(
            "stopped", f"in {time.monotonic() - began:.1f} s; all state is in {self._data.root}"
        )

    def _on_signal(self) -> None:
        if self._stop.is_set():
            if self._parts is not None:
                self._parts.kill()
            return
        self._screen.line("stopping", "Ctrl-C once more to stop at once")
        self._stop.set()

    def _on_event(self, event: ChildEvent) -> None:
        self._screen.event(event)
        if event.kind is EventKind.BACK:
            try:
                self._write_ready_file()
            except OSError as error:  # its folder may be gone by now; the child is back all the same
                self._screen.error(error)

    def _write_ready_file(self) -> None:
        if self._found is None or self._parts is None:
            return
        token, site = self._found
        ready = Ready(
            api=self._parts.api_url,
            ui=self._parts.temporal.ui_url or "",
            temporal=self._parts.temporal.address,
            token=token,
            tenant=TENANT,
            site=site,
            pids=self._parts.pids(),
        )
        for path in self._ready_files():
            write_ready(path, ready)

    def _remove_ready_file(self) -> None:
        for path in self._ready_files():
            path.unlink(missing_ok=True)

    def _ready_files(self) -> list[Path]:
        """The one in the data directory, by which the other commands find this API, and the one asked for."""
        asked = self._options.ready_file
        return [self._data.ready, *([asked] if asked is not None else [])]

    def _announce(self, parts: Parts, token: str) -> None:
        rows = [
            ("API", f"{parts.api_url}  (OpenAPI page: {parts.api_url}/docs)"),
            ("Temporal", f"{parts.temporal.ui_url}  (gRPC: {parts.temporal.address})"),
            ("token", f"{token}  (also in {self._data.token})"),
            ("tenant", f"{TENANT}, site {SITE}"),
            ("logs", str(self._data.logs)),
        ]
        self._screen.addresses(rows)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of parts that were started side by side; the others followed from it."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
