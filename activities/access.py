"""The way to machines: their answer is waited for without a thread, and what is done on them has one."""

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import TypeVar

from activities.ssh.connection import Connection
from activities.ssh.pool import ConnectionPool
from activities.ssh.reaching import reached
from activities.ssh.target import SshTarget
from activities.threads import Threads

R = TypeVar("R")


class Access:
    """Connections and threads, which a worker has so many of. A thousand silent machines take neither."""

    def __init__(self, pool: ConnectionPool, threads: Threads) -> None:
        self._pool = pool
        self._threads = threads

    async def run(self, target: SshTarget, work: Callable[[Connection, threading.Event], R]) -> R:
        """Works on the machine to the end, heartbeating; the event asks to stop. Raises SshError."""
        opened = await self._reached(target)

        def in_thread(stop: threading.Event) -> R:
            with self._pool.connection(target, opened) as connection:
                return work(connection, stop)

        return await self._threads.run(in_thread)

    async def start(self, target: SshTarget, work: Callable[[Connection], R]) -> asyncio.Future[R]:
        """Starts to work on the machine; the caller awaits the future to its end. Raises SshError."""
        opened = await self._reached(target)

        def in_thread() -> R:
            with self._pool.connection(target, opened) as connection:
                return work(connection)

        return self._threads.start(in_thread)

    async def _reached(self, target: SshTarget) -> socket.socket | None:
        """None where a connection is open already."""
        if self._pool.holds(target):
            return None
        return await reached(target, self._pool.connect_deadline_s)
