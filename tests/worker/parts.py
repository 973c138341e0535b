"""Parts of a worker that run for a while, and waiting for what they do."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from worker.dispatcher import Dispatcher
from worker.listener import Listener
from worker.watchdog import Watchdog


@asynccontextmanager
async def running(*parts: Dispatcher | Listener | Watchdog) -> AsyncIterator[None]:
    """Runs parts of a worker for the length of a block."""
    tasks = [asyncio.create_task(part.run()) for part in parts]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def eventually(ask: Callable[[], Awaitable[bool]]) -> None:
    """Asks until the answer is yes, for at most ten seconds."""
    async with asyncio.timeout(10):
        while not await ask():  # noqa: ASYNC110  # other processes change what is asked about
            await asyncio.sleep(0.02)
