"""Small helpers towards the host: commands, file locks, waiting."""

import fcntl
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

#: Commands are looked up here, whatever the caller's environment says: sbin is often missing from it.
COMMAND_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_POLL_SECONDS = 0.01


class CommandError(Exception):
    """A host command failed; the message names it and what it said."""


def command(*words: str, environment: dict[str, str] | None = None) -> str:
    """Run a host command and return its standard output; raises CommandError."""
    try:
        done = subprocess.run(
            words,
            env={"PATH": COMMAND_PATH, "LC_ALL": "C", **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise CommandError(f"{words[0]}: {error.strerror}") from error
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}"
        raise CommandError(f"{' '.join(words)}: {said}")
    return done.stdout


def try_lock(path: Path, kind: int = fcntl.LOCK_EX) -> int | None:
    """Lock a file without waiting; returns the descriptor that holds the lock, None where another has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def unlock(descriptor: int) -> None:
    """Give a lock back at once.

    Closing alone is not enough: a child that another thread has just forked holds a copy until its exec.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file's lock, against other threads as well as other processes; waits for it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        unlock(descriptor)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll until the condition holds; False when it did not within the given time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
