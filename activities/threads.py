"""Threads for what blocks (paramiko, providers), apart from the event loop that records and heartbeats."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from temporalio import activity

R = TypeVar("R")
# Heartbeats are throttled by the SDK to a fraction of the heartbeat timeout; beating often costs nothing.
TICK = 0.5


class Threads:
    """A bounded pool of threads whose work is waited for with heartbeats and never abandoned."""

    def __init__(self, size: int) -> None:
        self._executor = ThreadPoolExecutor(max_workers=size, thread_name_prefix="machine")

    def start(self, work: Callable[[], R]) -> asyncio.Future[R]:
        """Starts blocking work; the future must be awaited to its end by the caller."""
        return asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def run(self, work: Callable[[threading.Event], R]) -> R:
        """Runs blocking work to its end, heartbeating. The event asks it to stop when the activity must."""
        stop = threading.Event()
        future = self.start(lambda: work(stop))
        try:
            while not future.done():
                await asyncio.wait({future}, timeout=TICK)
                activity.heartbeat()
        except asyncio.CancelledError:
            stop.set()
            # The thread works within its own deadlines; leaving it behind would let it act after us.
            await asyncio.wait({future})
            raise
        return future.result()

    def close(self) -> None:
        """Waits for nothing: what still runs ends by its own deadlines."""
        self._executor.shutdown(wait=False, cancel_futures=True)
