"""The API in this process, over a real database; each test has a tenant of its own."""

import uuid
from collections.abc import AsyncIterator

import httpx
import pytest_asyncio
from fastapi import FastAPI

from api.app import create_app
from api.settings import ApiSettings
from cli.dev.postgres import EmbeddedPostgres
from database.schema import upgrade
from database.unit_of_work import Database
from tests.api.client import Api
from tests.database.world import World, make_world
from tests.fixtures.postgres import postgres_server

__all__ = ["postgres_server"]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def database(postgres_server: EmbeddedPostgres) -> AsyncIterator[Database]:
    """A database with the schema, as the application reaches it."""
    urls = await postgres_server.create_database(f"api_{uuid.uuid4().hex[:8]}")
    await upgrade(urls.owner, "bringup_app")
    database = Database(urls.app)
    try:
        yield database
    finally:
        await database.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def app(database: Database) -> FastAPI:
    """The application as `bringup dev` configures it."""
    return create_app(
        database,
        ApiSettings.model_validate({"sandbox_dir": "/sandbox", "temporal_ui": "http://ui.test"}),
    )


@pytest_asyncio.fixture(loop_scope="session")
async def world(database: Database) -> World:
    """A tenant that only this test knows, its token an owner's."""
    return await make_world(database)


@pytest_asyncio.fixture(loop_scope="session")
async def api(app: FastAPI, world: World) -> AsyncIterator[Api]:
    """A client of the application with the world's token."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://api.test", timeout=60) as client:
        yield Api(client, world.token, world.tenant)
