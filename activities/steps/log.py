"""The buffer between the thread that reads a step's output and the loop that stores it."""

import threading
from dataclasses import dataclass, field

from database.steps import STDERR, STDOUT

# The reader waits while this much is unstored, so that a talkative step costs bounded memory.
LIMIT = 4 * 1024 * 1024


class OutOfOrderError(Exception):
    """A piece of output that does not continue where the last one ended."""


@dataclass(slots=True)
class _Stream:
    stored: int
    pending: bytearray = field(default_factory=bytearray)


class StepLog:
    """Takes pieces of both streams from one thread; hands them out, joined, to the event loop."""

    def __init__(self, stdout_size: int, stderr_size: int) -> None:
        self._streams = {STDOUT: _Stream(stdout_size), STDERR: _Stream(stderr_size)}
        self._changed = threading.Condition()
        self._released = False

    @property
    def stdout_end(self) -> int:
        """Where standard output continues: what is stored and what is pending."""
        return self._end(STDOUT)

    @property
    def stderr_end(self) -> int:
        """Where standard error continues."""
        return self._end(STDERR)

    def _end(self, stream: int) -> int:
        with self._changed:
            held = self._streams[stream]
            return held.stored + len(held.pending)

    def feed_stdout(self, offset: int, data: bytes) -> None:
        """Adds standard output read at `offset`; blocks while too much is pending."""
        self._feed(STDOUT, offset, data)

    def feed_stderr(self, offset: int, data: bytes) -> None:
        """Adds standard error read at `offset`; blocks while too much is pending."""
        self._feed(STDERR, offset, data)

    def _feed(self, stream: int, offset: int, data: bytes) -> None:
        with self._changed:
            held = self._streams[stream]
            if offset != held.stored + len(held.pending):
                raise OutOfOrderError(f"output at {offset}, expected {held.stored + len(held.pending)}")
            held.pending += data
            self._changed.wait_for(
                lambda: self._released or sum(len(s.pending) for s in self._streams.values()) < LIMIT
            )

    def take(self) -> list[tuple[int, int, bytes]]:
        """What is pending, as (stream, start, data); it counts as stored from now on."""
        with self._changed:
            taken = []
            for number, stream in self._streams.items():
                if stream.pending:
                    taken.append((number, stream.stored, bytes(stream.pending)))
                    stream.stored += len(stream.pending)
                    stream.pending.clear()
            self._changed.notify_all()
            return taken

    def release(self) -> None:
        """Lets a blocked reader go on; nothing more will be taken."""
        with self._changed:
            self._released = True
            self._changed.notify_all()
