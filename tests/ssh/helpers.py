"""Small things several test modules need."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from activities.supervisor.client import Supervisor
from activities.supervisor.spec import StepOutcome, StepSpec


@dataclass
class Log:
    """Collects one stream and checks that it comes gapless."""

    data: bytearray = field(default_factory=bytearray)

    def take(self, offset: int, data: bytes) -> None:
        assert offset == len(self.data), f"a gap: {offset} after {len(self.data)}"
        self.data += data

    @property
    def size(self) -> int:
        return len(self.data)


@dataclass
class Logs:
    stdout: Log = field(default_factory=Log)
    stderr: Log = field(default_factory=Log)


def step(
    key: str,
    body: str | bytes,
    *,
    token: int = 1,
    check: str | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_s: int = 60,
    interpreter: str | None = None,
) -> StepSpec:
    return StepSpec(
        key=key,
        token=token,
        run=body.encode() if isinstance(body, str) else body,
        check=None if check is None else check.encode(),
        environment=environment or {},
        timeout_s=timeout_s,
        interpreter=interpreter,
    )


def run(
    supervisor: Supervisor,
    spec: StepSpec,
    logs: Logs | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    grace_s: float = 1.0,
) -> StepOutcome | None:
    logs = logs or Logs()
    return supervisor.run(
        spec,
        stdout_offset=logs.stdout.size,
        stderr_offset=logs.stderr.size,
        on_stdout=logs.stdout.take,
        on_stderr=logs.stderr.take,
        should_stop=should_stop,
        grace_s=grace_s,
    )


def finish(
    supervisor: Supervisor, spec: StepSpec, logs: Logs | None = None, grace_s: float = 1.0
) -> StepOutcome:
    outcome = run(supervisor, spec, logs, grace_s=grace_s)
    assert outcome is not None
    return outcome


def eventually(condition: Callable[[], bool], what: str, within_s: float = 10) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(0.01)


def runner_of(base: str, key: str) -> int:
    """Process id of a step's runner, once it has one."""
    story = Path(base, "runs", f"{key}_st")
    eventually(lambda: story.exists() and "runner" in story.read_text(), "the step has a runner")
    return int(story.read_text().split("runner ")[1].split()[0])


def exists(pid: int) -> bool:
    """Whether the process runs; a dead one that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pretend(base: str, *, way: str | None = None, lock: str | None = None) -> None:
    """Make the supervisor find processes, or lock files, as on a machine that can do only that."""
    path = Path(base, "way")
    boot, found_way, btime, reset, found_lock = path.read_text().split()
    path.write_text(f"{boot} {way or found_way} {btime} {reset}\n{lock or found_lock}\n")


@contextmanager
def small_disk(path: str, size: str) -> Iterator[None]:
    """A file system of that size on a folder, which is made."""
    Path(path).mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "bringup-test", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)
