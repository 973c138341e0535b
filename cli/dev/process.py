"""One supervised process: started, watched, restarted, stopped, and never left behind."""

import asyncio
import contextlib
import os
import shutil
import signal
import time
from asyncio.subprocess import DEVNULL, Process
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from cli.dev.errors import DevError
from cli.dev.identity import ProcessIdentity, end, kill_group

PROBE_INTERVAL = 0.05  # seconds between two looks at a process that is coming up
_FAILING_DEATHS, _FAILING_WINDOW = 5, 60.0
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 10.0
_LOG_LIMIT = 16 * 1024 * 1024


class ChildError(DevError):
    """A process did not come up; `lines` are the last ones of its log."""

    def __init__(self, name: str, reason: str, lines: Sequence[str], log: Path) -> None:
        self.name = name
        self.reason = reason
        self.lines = tuple(lines)
        self.log = log
        super().__init__(f"{name} {reason}; its log is {log}")


class EventKind(Enum):
    """What happened to a process that had come up before."""

    DIED = "died"
    FAILING = "failing"
    BACK = "back"


@dataclass(frozen=True)
class ChildEvent:
    """Something that a person watching wants to know about a child."""

    name: str
    kind: EventKind
    text: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """How a process is started, known to serve, and stopped. Times are in seconds.

    `prepare` blocks and runs in a thread before every start. `orphaned` is the signal that the process
    gets when its supervisor dies. `privileges` are options of setpriv(1).
    """

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    pid_file: Path
    serves: Callable[[], Awaitable[bool]]
    serves_within: float = 30.0
    prepare: Callable[[], None] = lambda: None
    stop_signal: signal.Signals = signal.SIGTERM
    stop_grace: float = 3.0
    orphaned: signal.Signals = signal.SIGKILL
    privileges: Sequence[str] = ()
    directory: Path = field(default_factory=Path.cwd)


def tied(argv: Sequence[str], orphaned: signal.Signals, privileges: Sequence[str] = ()) -> list[str]:
    """`argv` so that the kernel sends it `orphaned` when the process that starts it dies.

    setpriv(1) asks the kernel for that between fork and exec, where Python code would not be safe.
    """
    setpriv = shutil.which("setpriv") or "/usr/bin/setpriv"
    return [setpriv, "--pdeathsig", orphaned.name.removeprefix("SIG"), *privileges, "--", *argv]


class Child:
    """Supervises one `Program`. Start and stop it from the event loop of the main thread.

    The signal for orphans is tied to the thread that forks, hence the main thread.
    """

    def __init__(self, program: Program, on_event: Callable[[ChildEvent], None] = lambda event: None) -> None:
        self.program = program
        self._on_event = on_event
        self._process: Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._deaths: deque[float] = deque(maxlen=_FAILING_DEATHS)
        self._log_start = 0
        self._served: int | None = None

    @property
    def pid(self) -> int | None:
        """The number of the running process; None while there is none."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if self._process is not None and running else None

    @property
    def served(self) -> int | None:
        """The process that serves; while it is being restarted the one that did; None when stopped."""
        return self._served

    async def start(self) -> None:
        """Starts the process and returns when it serves; `ChildError` if it does not come up.

        From then on it is restarted, with a growing delay, whenever it ends by itself.
        """
        try:
            await self._launch()
        except BaseException:
            await self._end_process(grace=0.0)
            raise
        self._keeper = asyncio.create_task(self._keep(), name=f"keep {self.program.name}")

    async def stop(self, *, force: bool = False) -> None:
        """Ends the process with its group and returns when it is gone; harmless when there is none."""
        if self._keeper is not None:
            await end_task(self._keeper)
            self._keeper = None
        self._served = None
        await self._end_process(grace=0.0 if force else self.program.stop_grace)

    def kill(self) -> None:
        """SIGKILL at once and for good, for a person who does not want to wait for `stop`."""
        if self._keeper is not None:
            self._keeper.cancel()
        if self.pid is not None:
            kill_group(self.pid)

    def last_lines(self, count: int = 5) -> tuple[str, ...]:
        """The last lines that this run of the process wrote to its log."""
        return last_lines(self.program.log, count, self._log_start)

    async def _launch(self) -> None:
        await asyncio.to_thread(self._clear_the_way)
        program = self.program
        with program.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = await asyncio.create_subprocess_exec(
                *tied(program.argv, program.orphaned, program.privileges),
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(program.environment),
                cwd=program.directory,
                start_new_session=True,  # a terminal's Ctrl-C is for the supervisor, which stops in order
            )
        identity = ProcessIdentity.of(self._process.pid)
        if identity is not None:
            identity.write(program.pid_file)
        await self._until_serving(self._process)
        self._served = self._process.pid

    def _clear_the_way(self) -> None:
        end_leftover(self.program)
        rotate(self.program.log)
        self.program.prepare()

    async def _until_serving(self, process: Process) -> None:
        deadline = time.monotonic() + self.program.serves_within
        ended = asyncio.create_task(process.wait())
        try:
            while not await self.program.serves():
                await asyncio.wait({ended}, timeout=PROBE_INTERVAL)
                if ended.done():
                    raise self._failure(describe_exit(ended.result()))
                if time.monotonic() > deadline:
                    raise self._failure(f"did not serve within {self.program.serves_within:g} s")
        finally:
            ended.cancel()

    def _failure(self, reason: str) -> ChildError:
        return ChildError(self.program.name, reason, self.last_lines(), self.program.log)

    async def _keep(self) -> None:
        while self._process is not None:
            reason = describe_exit(await self._process.wait())
            kill_group(self._process.pid)
            while failure := await self._bring_back(reason):
                reason = failure
            self._event(EventKind.BACK, f"is back as process {self.pid}")

    async def _bring_back(self, reason: str) -> str | None:
        """Starts the process again after a pause; returns why that failed, None when it serves."""
        lines, delay = self.last_lines(), self._delay()
        self._event(EventKind.DIED, f"{reason}; starting it again in {delay:g} s", lines)
        await asyncio.sleep(delay)
        try:
            await self._launch()
        except ChildError as error:
            failure = error.reason
        except Exception as error:  # whatever goes wrong, a supervisor goes on and says so
            failure = f"could not be started ({error!r})"
        else:
            return None
        await self._end_process(grace=0.0)
        return failure

    def _delay(self) -> float:
        """Counts a death and says how long to wait: doubling with each death of the last minute."""
        now = time.monotonic()
        self._deaths.append(now)
        recent = [death for death in self._deaths if now - death < _FAILING_WINDOW]
        if len(recent) < _FAILING_DEATHS:
            return _FIRST_DELAY * float(2 ** (len(recent) - 1))
        self._event(
            EventKind.FAILING,
            f"died {_FAILING_DEATHS} times within {_FAILING_WINDOW:g} s; still trying, every "
            f"{_LONGEST_DELAY:g} s; see {self.program.log}",
        )
        return _LONGEST_DELAY

    def _event(self, kind: EventKind, text: str, lines: tuple[str, ...] = ()) -> None:
        self._on_event(ChildEvent(self.program.name, kind, text, lines))

    async def _end_process(self, grace: float) -> None:
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(self.program.stop_signal if grace else signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace or None):
                    await process.wait()
        kill_group(process.pid)
        await process.wait()
        self._process = None
        self.program.pid_file.unlink(missing_ok=True)


async def end_task(task: asyncio.Task[None]) -> None:
    """Cancels a task until it is done, for a library in the midst of a call may swallow a cancellation."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=PROBE_INTERVAL)


def end_leftover(program: Program) -> bool:
    """Ends what a killed supervisor left of this program; returns whether there was something."""
    identity = ProcessIdentity.read(program.pid_file)
    found = identity is not None and end(identity, program.stop_signal, program.stop_grace)
    program.pid_file.unlink(missing_ok=True)
    return found


def describe_exit(status: int) -> str:
    """An exit status in words: "ended with status 1", "was killed by SIGKILL"."""
    if status >= 0:
        return f"ended with status {status}"
    return f"was killed by {signal.Signals(-status).name}"


def last_lines(log: Path, count: int, start: int = 0) -> tuple[str, ...]:
    """At most `count` last lines of a log, of what was written from byte `start` on."""
    try:
        with log.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(start, size - 16384))
            text = stream.read().decode(errors="replace")
    except FileNotFoundError:
        return ()
    return tuple(line for line in text.splitlines() if line.strip())[-count:]


def rotate(log: Path) -> None:
    """Puts a log aside, once, when it has grown past 16 MiB, so that a data directory stays bounded."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > _LOG_LIMIT:
            log.replace(log.with_name(log.name + ".1"))
