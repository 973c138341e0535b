"""Connections kept open between steps, one per machine."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from activities.ssh.connection import Connection
from activities.ssh.errors import ConnectError, SshError
from activities.ssh.target import SshTarget

_Identity = tuple[str, int, str, str, str | None]


@dataclass(slots=True)
class _Slot:
    """A place in the pool: first a connect under way, then a connection with users."""

    connection: Connection | None = None
    error: SshError | None = None
    users: int = 0
    idle_since: float = 0.0

    def idle_for(self, now: float) -> float | None:
        return None if self.users or self.connection is None else now - self.idle_since


class ConnectionPool:
    """One transport per machine and at most `max_channels` users of it at a time; safe for any thread.

    Several first users share one connect, and its failure. A connection that broke is dropped when it is
    given back or asked for; one unused for `max_idle_s` is closed by the pool's own thread. Beyond
    `max_connections` (each costs a thread, a descriptor and some 60 KB) the longest idle one makes room;
    when all are in use, or a machine's channels are, a caller waits up to `wait_s`, then gets ConnectError.
    """

    def __init__(
        self,
        max_idle_s: float = 60,
        max_channels: int = 8,
        max_connections: int = 512,
        *,
        wait_s: float = 30,
        connect_deadline_s: float = 5.0,
    ) -> None:
        self._max_idle_s = max_idle_s
        self._max_channels = max_channels
        self._max_connections = max_connections
        self._wait_s = wait_s
        self.connect_deadline_s = connect_deadline_s
        self._slots: dict[_Identity, _Slot] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._reaper: threading.Thread | None = None
        # Closing takes paramiko up to a tenth of a second: the reaper does it, outside the lock.
        self._doomed: list[Connection] = []

    @contextmanager
    def connection(self, target: SshTarget, opened: socket.socket | None = None) -> Iterator[Connection]:
        """Lend the machine's connection for one channel's worth of use. Raises SshError.

        `opened` leads to the machine already, and is used where a new connection is to be made, else closed.
        """
        slot = self._acquire(target, opened)
        assert slot.connection is not None, "an acquired slot is connected"
        try:
            yield slot.connection
        finally:
            self._release(target, slot)

    def holds(self, target: SshTarget) -> bool:
        """Whether there is a live connection to the machine, or one being made."""
        with self._changed:
            slot = self._slots.get(target.identity)
            return slot is not None and (slot.connection is None or slot.connection.alive)

    @property
    def size(self) -> int:
        """Connections open or being opened."""
        with self._changed:
            return len(self._slots)

    def close(self) -> None:
        """Close every connection, used or not; later calls are refused with ConnectError."""
        with self._changed:
            self._closed = True
            for slot in self._slots.values():
                self._doom(slot)
            self._slots.clear()
            doomed, self._doomed = self._doomed, []
            reaper = self._reaper
            self._changed.notify_all()
        for connection in doomed:
            connection.close()
        if reaper is not None:
            reaper.join(timeout=5)

    def _acquire(self, target: SshTarget, opened: socket.socket | None) -> _Slot:
        identity = target.identity
        try:
            with self._changed:
                slot = self._wait_for(target, lambda: self._place(identity))
                if slot.connection is not None:
                    return slot
            using, opened = opened, None
            self._connect(target, slot, using)
            return slot
        finally:
            if opened is not None:
                opened.close()

    def _wait_for(self, target: SshTarget, attempt: Callable[[], _Slot | None]) -> _Slot:
        deadline = time.monotonic() + self._wait_s
        while True:
            if self._closed:
                raise ConnectError(f"{target.endpoint}: the connection pool is closed")
            if (slot := attempt()) is not None:
                return slot
            left = deadline - time.monotonic()
            if left <= 0:
                raise ConnectError(
                    f"{target.endpoint}: no free connection within {self._wait_s:g} s "
                    f"({len(self._slots)} open, at most {self._max_channels} channels each)"
                )
            self._changed.wait(left)

    def _place(self, identity: _Identity) -> _Slot | None:
        """Under the lock: a slot to use, a new one the caller must connect, or None to wait."""
        slot = self._slots.get(identity)
        if slot is not None and slot.connection is not None and not slot.connection.alive:
            del self._slots[identity]
            slot = None
        if slot is None:
            return self._new_slot(identity)
        if slot.connection is None:
            return self._join_connect(slot)
        if slot.users >= self._max_channels:
            return None
        slot.users += 1
        return slot

    def _new_slot(self, identity: _Identity) -> _Slot | None:
        if len(self._slots) >= self._max_connections and not self._evict_longest_idle():
            return None
        slot = self._slots[identity] = _Slot(users=1)
        return slot

    def _join_connect(self, slot: _Slot) -> _Slot | None:
        """Wait for another thread's connect; its failure is this caller's too, so that no storm follows."""
        while slot.connection is None and slot.error is None and not self._closed:
            self._changed.wait(1)
        if slot.error is not None:
            raise type(slot.error)(*slot.error.args) from slot.error
        return None

    def _evict_longest_idle(self) -> bool:
        now = time.monotonic()
        idle = [(age, key) for key, slot in self._slots.items() if (age := slot.idle_for(now)) is not None]
        if not idle:
            return False
        self._doom(self._slots.pop(max(idle, key=lambda entry: entry[0])[1]))
        return True

    def _connect(self, target: SshTarget, slot: _Slot, opened: socket.socket | None) -> None:
        error: SshError = ConnectError(f"{target.endpoint}: the connect was interrupted")
        connection: Connection | None = None
        try:
            connection = Connection.open(target, self.connect_deadline_s, opened)
        except SshError as failure:
            error = failure
            raise
        finally:
            with self._changed:
                if connection is None:
                    slot.error = error
                    self._forget(target.identity, slot)
                slot.connection = connection
                self._changed.notify_all()
                closed = self._closed
                if not closed and self._reaper is None:
                    self._reaper = threading.Thread(target=self._reap, name="ssh-pool-reaper", daemon=True)
                    self._reaper.start()
        if closed and connection is not None:
            connection.close()
            raise ConnectError(f"{target.endpoint}: the connection pool is closed")

    def _release(self, target: SshTarget, slot: _Slot) -> None:
        with self._changed:
            slot.users -= 1
            slot.idle_since = time.monotonic()
            if slot.connection is not None and not slot.connection.alive:
                self._forget(target.identity, slot)
                if slot.users == 0:
                    self._doom(slot)
            self._changed.notify_all()

    def _doom(self, slot: _Slot) -> None:
        if slot.connection is not None:
            self._doomed.append(slot.connection)

    def _forget(self, identity: _Identity, slot: _Slot) -> None:
        if self._slots.get(identity) is slot:
            del self._slots[identity]

    def _reap(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                next_s = self._expire()
                if not self._doomed:
                    self._changed.wait(next_s)
                doomed, self._doomed = self._doomed, []
            for connection in doomed:
                connection.close()

    def _expire(self) -> float | None:
        """Under the lock: take out what was idle too long. Seconds until the next may be, if any is idle."""
        now = time.monotonic()
        ages = {key: age for key, slot in self._slots.items() if (age := slot.idle_for(now)) is not None}
        for key, age in ages.items():
            if age >= self._max_idle_s:
                self._doom(self._slots.pop(key))
                self._changed.notify_all()
        return min((self._max_idle_s - age for age in ages.values() if age < self._max_idle_s), default=None)
