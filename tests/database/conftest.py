"""A database with the schema, for the whole session, and a tenant of its own for each test."""

import uuid
from collections.abc import AsyncIterator

import pytest_asyncio

from cli.dev.postgres import DatabaseUrls, EmbeddedPostgres
from database.schema import upgrade
from database.unit_of_work import Database
from tests.database.world import World, make_world
from tests.fixtures.postgres import postgres_server

__all__ = ["postgres_server"]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def database_urls(postgres_server: EmbeddedPostgres) -> DatabaseUrls:
    """A fresh database with every migration applied by its owner."""
    urls = await postgres_server.create_database(f"core_{uuid.uuid4().hex[:8]}")
    await upgrade(urls.owner, "bringup_app")
    return urls


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def database(database_urls: DatabaseUrls) -> AsyncIterator[Database]:
    """The database as the application reaches it."""
    database = Database(database_urls.app)
    try:
        yield database
    finally:
        await database.close()


@pytest_asyncio.fixture(loop_scope="session")
async def world(database: Database) -> World:
    """A tenant that only this test knows."""
    return await make_world(database)
