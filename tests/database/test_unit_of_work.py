"""Transactions: what becomes of one whose process says nothing any more."""

import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from cli.dev.postgres import DatabaseUrls
from database.tables import Tenant
from database.unit_of_work import Database
from tests.database.world import World


async def touch(session: AsyncSession, tenant: str) -> None:
    """Takes the lock on a tenant's row."""
    await session.execute(update(Tenant).where(Tenant.id == tenant).values(id=tenant))


async def test_a_process_that_was_frozen_in_a_transaction_holds_its_locks_for_a_while_only(
    database_urls: DatabaseUrls, database: Database, world: World
) -> None:
    frozen = Database(database_urls.app, abandoned_seconds=0.5)

    async def late_commit() -> None:
        async with frozen.begin() as late:
            await touch(late, world.tenant)
            async with database.begin() as session:
                # Waits for the lock, until the server has taken it from the other.
                await touch(session, world.tenant)
            await late.execute(select(Tenant.id))

    try:
        with pytest.raises(DBAPIError):
            await late_commit()
        async with frozen.begin() as again:
            assert await again.scalar(select(Tenant.id).where(Tenant.id == world.tenant)) == world.tenant
    finally:
        await frozen.close()
