"""Outbox rows become workflows: woken at once, told once, put off with a reason while Temporal is away."""

import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress

from sqlalchemy import select
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment

from cli.dev.postgres import DatabaseUrls
from database.operations import OUTBOX_CHANNEL, NewRun, submit_operation
from database.tables import Operation, Outbox
from database.unit_of_work import Database
from domain.states import RunState
from domain.workflow_ids import operation_workflow_id
from tests.database.world import World
from tests.worker.parts import eventually, running
from worker.dispatcher import Dispatcher
from worker.listener import Listener
from workflows.client import connect

NEVER = 3600.0


async def submit(database: Database, world: World) -> uuid.UUID:
    """One operation with one run on a machine of the world's."""
    operation_id = uuid.uuid4()
    (machine,) = await world.machines(1)
    async with database.begin() as session:
        await submit_operation(
            session,
            operation_id=operation_id,
            tenant_id=world.tenant,
            action="clean",
            actor="tester",
            runs=[NewRun(name="m-1", generation=1, machine_id=machine)],
        )
    return operation_id


async def outbox_of(database: Database, operation_id: uuid.UUID) -> Outbox:
    async with database.begin() as session:
        return (await session.execute(select(Outbox).where(Outbox.operation_id == operation_id))).scalar_one()


def started(environment: WorkflowEnvironment, operation_id: uuid.UUID) -> Callable[[], Awaitable[bool]]:
    async def ask() -> bool:
        with suppress(RPCError):
            await environment.client.get_workflow_handle(operation_workflow_id(operation_id)).describe()
            return True
        return False

    return ask


async def test_a_notification_wakes_the_dispatcher_long_before_its_poll(
    database: Database, database_urls: DatabaseUrls, world: World, time_skipping: WorkflowEnvironment
) -> None:
    dispatcher = Dispatcher(database, time_skipping.client, "nobody", poll_seconds=NEVER)
    listener = Listener(database_urls.app, OUTBOX_CHANNEL, dispatcher.wake)
    async with running(dispatcher, listener):
        # Once this one is told, the listener listens and the dispatcher waits for its next wake.
        first = await submit(database, world)
        await eventually(started(time_skipping, first))
        second = await submit(database, world)
        await eventually(started(time_skipping, second))


async def test_the_poll_finds_what_no_notification_told(
    database: Database, world: World, time_skipping: WorkflowEnvironment
) -> None:
    dispatcher = Dispatcher(database, time_skipping.client, "nobody", poll_seconds=0.1)
    async with running(dispatcher):
        operation_id = await submit(database, world)
        await eventually(started(time_skipping, operation_id))


async def test_two_dispatchers_tell_a_row_once(
    database: Database, world: World, time_skipping: WorkflowEnvironment
) -> None:
    both = [Dispatcher(database, time_skipping.client, "nobody", poll_seconds=0.05) for _ in range(2)]
    async with running(*both):
        told = [await submit(database, world) for _ in range(5)]

        async def all_told() -> bool:
            rows = [await outbox_of(database, operation_id) for operation_id in told]
            return all(row.dispatched_at for row in rows)

        await eventually(all_told)
    assert [(await outbox_of(database, operation_id)).attempts for operation_id in told] == [1] * 5


async def test_while_temporal_is_away_the_operation_stays_and_says_what_it_waits_for(
    database: Database, world: World
) -> None:
    nowhere = await connect("127.0.0.1:1", "default", lazy=True)
    dispatcher = Dispatcher(database, nowhere, "nobody", poll_seconds=0.05)
    operation_id = await submit(database, world)

    async def put_off() -> bool:
        return (await outbox_of(database, operation_id)).attempts > 0

    async with running(dispatcher):
        await eventually(put_off)
    async with database.begin() as session:
        operation = (
            await session.execute(select(Operation).where(Operation.id == operation_id))
        ).scalar_one()
    assert operation.state == RunState.PENDING
    assert operation.message.startswith("waiting for the workflow engine: ")
    assert (await outbox_of(database, operation_id)).dispatched_at is None
