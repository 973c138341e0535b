"""How many steps this worker follows at once, and whether others wait for a place."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Slots:
    """Places for activities at work on machines.

    A step goes on by itself on its machine. So one that takes long is let go of while others wait, and
    followed again a little later: a thousand long steps of one tenant then hold up nobody's short one.
    """

    # A step is followed at least this long, in seconds, before it is let go of.
    TURN = 5.0
    # The part of the worker's places that steps fill before they take turns; short activities need the rest.
    SHARE = 0.75

    def __init__(self, size: int) -> None:
        self._size = max(1, int(size * self.SHARE))
        self._used = 0

    @contextmanager
    def taken(self) -> Iterator["Turn"]:
        """Holds one place."""
        self._used += 1
        try:
            yield Turn(self)
        finally:
            self._used -= 1

    @property
    def full(self) -> bool:
        """Whether an activity that is due now finds no place on this worker."""
        return self._used >= self._size


class Turn:
    """One step's time in its place."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._began = time.monotonic()

    @property
    def over(self) -> bool:
        """Whether the place should be given to somebody else."""
        return self._slots.full and time.monotonic() - self._began > Slots.TURN
