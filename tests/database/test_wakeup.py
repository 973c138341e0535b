"""Dispatchers are woken by the commit of an operation that has something to do, and by nothing else."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
from sqlalchemy.engine import make_url

from cli.dev.postgres import DatabaseUrls
from database.operations import OUTBOX_CHANNEL, NewRun, submit_operation
from tests.database.world import World

MARKER = "marker"


class Ear:
    """A connection that listens. The server tells all that is committed in the order of the commits."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._heard: asyncio.Queue[str] = asyncio.Queue()

    async def listen(self) -> None:
        await self._connection.add_listener(OUTBOX_CHANNEL, self._hear)

    def _hear(self, *told: object) -> None:
        self._heard.put_nowait(str(told[3]))

    async def next(self) -> str:
        """The payload of the next notification; fails when none comes within ten seconds."""
        async with asyncio.timeout(10):
            return await self._heard.get()

    async def outbox_rows(self, operation_id: uuid.UUID) -> int:
        """How many outbox rows of an operation this connection sees."""
        return int(
            await self._connection.fetchval(
                "SELECT count(*) FROM outbox WHERE operation_id = $1", operation_id
            )
        )


@asynccontextmanager
async def ear(urls: DatabaseUrls) -> AsyncIterator[Ear]:
    """Listens for the length of a block, as a worker's listener does: with the application's rights."""
    dsn = make_url(urls.app).set(drivername="postgresql").render_as_string(hide_password=False)
    connection = await asyncpg.connect(dsn, timeout=5)
    try:
        ear = Ear(connection)
        await ear.listen()
        yield ear
    finally:
        await connection.close()


async def submit(world: World, *machines: str, fails: bool = False) -> uuid.UUID:
    """An operation with one run for each machine, in a transaction of its own."""
    operation_id = uuid.uuid4()
    async with world.database.begin() as session:
        await submit_operation(
            session,
            operation_id=operation_id,
            tenant_id=world.tenant,
            action="clean",
            actor="tester",
            runs=[NewRun(name="m-1", generation=1, machine_id=machine) for machine in machines],
        )
        if fails:
            raise LookupError
    return operation_id


async def mark(world: World) -> None:
    """A notification of the test's own, behind all that was committed before it."""
    await world.fetch("SELECT pg_notify(:channel, :marker)", channel=OUTBOX_CHANNEL, marker=MARKER)


async def test_a_committed_operation_wakes_who_listens_and_is_there_to_be_read(
    world: World, database_urls: DatabaseUrls
) -> None:
    machines = await world.machines(1)
    async with ear(database_urls) as listening:
        operation_id = await submit(world, *machines)
        assert await listening.next() == ""
        assert await listening.outbox_rows(operation_id) == 1


async def test_an_operation_that_is_rolled_back_wakes_nobody(
    world: World, database_urls: DatabaseUrls
) -> None:
    machines = await world.machines(1)
    async with ear(database_urls) as listening:
        with pytest.raises(LookupError):
            await submit(world, *machines, fails=True)
        await mark(world)
        assert await listening.next() == MARKER


async def test_an_operation_without_runs_wakes_nobody(world: World, database_urls: DatabaseUrls) -> None:
    async with ear(database_urls) as listening:
        operation_id = await submit(world)
        await mark(world)
        assert await listening.next() == MARKER
        assert await listening.outbox_rows(operation_id) == 0
