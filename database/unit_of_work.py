"""The one place that opens a transaction and commits it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine


class Database:
    """An engine and the unit of work over it. One per process; `close()` it at the end."""

    def __init__(self, url: str, *, pool_size: int = 20, application_name: str = "bringup") -> None:
        self._engine = create_async_engine(
            url,
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_pre_ping=True,
            connect_args={
                "timeout": 5,
                "command_timeout": 60,
                "server_settings": {"application_name": application_name},
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
