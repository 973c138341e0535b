"""LISTEN on the outbox's channel, over a connection of its own that is made again whenever it breaks."""

import asyncio
from collections.abc import Callable

import asyncpg
import structlog
from sqlalchemy.engine import make_url

log = structlog.get_logger(__name__)
_CHECK_SECONDS = 10.0


class Listener:
    """Calls `on_notify` for each notification, and once for each new connection (what was missed is due)."""

    def __init__(self, url: str, channel: str, on_notify: Callable[[], None]) -> None:
        self._dsn = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._channel = channel
        self._on_notify = on_notify

    async def run(self) -> None:
        """Until cancelled. While the database is away the dispatcher's poll stands in."""
        while True:
            try:
                await self._listen()
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                log.warning("listener: the database is away", error=str(error))
                await asyncio.sleep(1)

    async def _listen(self) -> None:
        connection = await asyncpg.connect(self._dsn, timeout=5)
        try:
            await connection.add_listener(self._channel, lambda *_: self._on_notify())
            self._on_notify()
            while True:
                await asyncio.sleep(_CHECK_SECONDS)
                # Says when a connection has silently died.
                await connection.execute("SELECT 1", timeout=5)
        finally:
            connection.terminate()
