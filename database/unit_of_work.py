"""The one place that opens a transaction and commits it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

# The server ends a transaction that nothing is asked of for so long: a process that was frozen in the middle
# of one, or lost its network, would else hold its locks against those who took over. The dispatcher's waits
# longest, for two calls to the workflow engine of at most ten seconds each.
ABANDONED_SECONDS = 30.0


class Database:
    """An engine and the unit of work over it. One per process; `close()` it at the end."""

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 20,
        application_name: str = "bringup",
        abandoned_seconds: float = ABANDONED_SECONDS,
    ) -> None:
        self._engine = create_async_engine(
            url,
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_pre_ping=True,
            connect_args={
                "timeout": 5,
                "command_timeout": 60,
                "server_settings": {
                    "application_name": application_name,
                    "idle_in_transaction_session_timeout": f"{round(abandoned_seconds * 1000)}ms",
                },
            },
        )

    @property
    def engine(self) -> AsyncEngine:
        """The engine, for migrations' and tests' sake."""
        return self._engine

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncSession]:
        """One transaction: committed when the block ends, rolled back when it raises."""
        async with AsyncSession(self._engine, expire_on_commit=False) as session, session.begin():
            yield session

    async def close(self) -> None:
        """Closes every connection."""
        await self._engine.dispose()
