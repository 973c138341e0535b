"""The migrations: they make what the tables say, and can be gone back."""

import uuid
from collections.abc import Callable
from typing import TypeVar

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect
from sqlalchemy.ext.asyncio import create_async_engine

from cli.dev.postgres import DatabaseUrls, EmbeddedPostgres
from database.schema import alembic_config, upgrade
from database.tables import Base

ROLE = "bringup_app"
T = TypeVar("T")


async def fresh(server: EmbeddedPostgres) -> DatabaseUrls:
    """A database of the test's own, with the schema."""
    urls = await server.create_database(f"schema_{uuid.uuid4().hex[:8]}")
    await upgrade(urls.owner, ROLE)
    return urls


async def within(url: str, work: Callable[[Connection], T]) -> T:
    """Does something over one connection of the owner's."""
    engine = create_async_engine(url)
    try:
        async with engine.begin() as connection:
            return await connection.run_sync(work)
    finally:
        await engine.dispose()


def differences(connection: Connection) -> list[object]:
    """What the tables in the code have otherwise; partitions are made by migrations only."""
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    return [
        found
        for found in compare_metadata(context, Base.metadata)
        if not (found[0] == "remove_table" and found[1].name in ("alembic_version", "log_chunks_default"))
    ]


async def test_migrations_make_what_the_tables_say(postgres_server: EmbeddedPostgres) -> None:
    urls = await fresh(postgres_server)
    assert await within(urls.owner, differences) == []


async def test_every_migration_can_be_gone_back_and_made_again(postgres_server: EmbeddedPostgres) -> None:
    urls = await fresh(postgres_server)
    await within(urls.owner, lambda sync: command.downgrade(alembic_config(sync, ROLE), "base"))
    left = await within(urls.owner, lambda sync: inspect(sync).get_table_names())
    assert left == ["alembic_version"]
    await upgrade(urls.owner, ROLE)
    assert await within(urls.owner, differences) == []
