"""Which process is meant by a number, even after the number was given to another process."""

import json
import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_STATE, _STARTED = 0, 19  # fields of /proc/PID/stat, counted after the command's closing bracket


@dataclass(frozen=True)
class ProcessIdentity:
    """A process by number, start time (clock ticks since boot) and boot: no other ever has all three."""

    pid: int
    started: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> "ProcessIdentity | None":
        """The identity of a living process; None when there is none of that number."""
        fields = _stat(pid)
        if fields is None:
            return None
        return cls(pid, int(fields[_STARTED]), _BOOT_ID.read_text().strip())

    @classmethod
    def read(cls, path: Path) -> "ProcessIdentity | None":
        """What `write` stored; None when the file is absent or was cut short."""
        try:
            stored = json.loads(path.read_text())
            return cls(int(stored["pid"]), int(stored["started"]), str(stored["boot"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, path: Path) -> None:
        """Stores the identity by rename, so that a reader never sees half of it."""
        temporary = path.with_name(path.name + ".new")
        temporary.write_text(json.dumps(asdict(self)))
        temporary.replace(path)

    def alive(self) -> bool:
        """Whether exactly this process still runs; a zombie does not."""
        return ProcessIdentity.of(self.pid) == self


def end(identity: ProcessIdentity, first: signal.Signals, grace: float) -> bool:
    """Ends one process for certain: `first`, up to `grace` seconds, then SIGKILL with its group.

    Returns whether there was something to end. Blocks; the process need not be a child.
    """
    with _handle(identity) as handle:
        if handle is None:
            return False
        signal.pidfd_send_signal(handle, first)
        if not _ended(handle, grace):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            _ended(handle, 5.0)
    kill_group(identity.pid)
    return True


def kill_group(leader: int) -> None:
    """SIGKILL to what is left of the process group that `leader` led."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def working_in(directory: Path) -> list[ProcessIdentity]:
    """The processes whose working directory is `directory`, as far as this user may see."""
    try:
        wanted = directory.stat()
    except FileNotFoundError:
        return []
    return [identity for identity in _all() if _works_in(identity.pid, wanted)]


def _all() -> Iterator[ProcessIdentity]:
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (identity := ProcessIdentity.of(int(entry))) is not None:
            yield identity


def _works_in(pid: int, wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(f"/proc/{pid}/cwd"), wanted)
    except OSError:
        return False


@contextmanager
def _handle(identity: ProcessIdentity) -> Iterator[int | None]:
    """A descriptor that means this process only: opened first, compared after, so that reuse is seen."""
    try:
        handle = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield handle if identity.alive() else None
    except ProcessLookupError:
        return  # it ended between two signals
    finally:
        os.close(handle)


def _ended(handle: int, seconds: float) -> bool:
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    return bool(poller.poll(seconds * 1000))


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[_STATE] in "ZX" else fields
