"""The watchdog against a real server: records of dead workflows, and operations past their deadline."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from activities.signatures import OperationRef
from database.pools import find_pool
from database.reservations import NewReservation, create_reservation
from database.steps import begin_step
from database.tables import PROVE, Booking, Operation, QuotaRow, Reservation, Run, StepRun
from database.unit_of_work import Database
from domain.failures import FailureCard, FailureClass
from domain.states import NodeStatus, RunState
from domain.workflow_ids import operation_workflow_id
from tests.database import decisions as made
from tests.database.scenes import claimed, created, terminating
from tests.database.world import World
from tests.worker.parts import eventually, running
from worker.watchdog import OVERDUE, Watchdog
from workflows.operation import OperationWorkflow

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


class Watched:
    """Operations that a watchdog looks at, more than once."""

    def __init__(self, database: Database, world: World, environment: WorkflowEnvironment) -> None:
        self.database = database
        self.world = world
        self.client = environment.client

    async def started(self, operation_id: uuid.UUID) -> WorkflowHandle[OperationWorkflow, object]:
        """Its workflow, which no worker ever takes up; its outbox row is told."""
        await self.told(operation_id)
        return await self.client.start_workflow(
            OperationWorkflow.run,
            OperationRef(operation_id=operation_id),
            id=operation_workflow_id(operation_id),
            task_queue="nobody",
        )

    async def told(self, operation_id: uuid.UUID) -> None:
        """Nothing is left in the outbox."""
        async with self.database.begin() as session:
            for row in await session.scalars(made.outbox(operation_id)):
                row.dispatched_at = datetime.now(UTC)

    async def round(self, operation_id: uuid.UUID) -> Operation:
        """Two looks at it, one after the other, and the operation after them."""
        async with running(Watchdog(self.database, self.client, round_seconds=0.05)):
            # A check sets the next one first: the first look is over when the second has begun.
            for _ in range(3):
                await self._look(operation_id)
        return await made.operation(self.world, operation_id)

    async def _look(self, operation_id: uuid.UUID) -> None:
        await self.world.set(Operation, Operation.id == operation_id, next_check_at=LONG_AGO)

        async def looked() -> bool:
            await self.told(operation_id)
            operation = await made.operation(self.world, operation_id)
            return operation.ended_at is not None or operation.next_check_at > LONG_AGO

        await eventually(looked)


@pytest.fixture
def watched(database: Database, world: World, time_skipping: WorkflowEnvironment) -> Watched:
    return Watched(database, world, time_skipping)


async def at_work(world: World) -> Run:
    """A create whose run has begun its first step."""
    run, node = await created(world)
    await claimed(world, run.id)
    assert node.machine_id is not None
    async with world.database.begin() as session:
        await begin_step(
            session,
            run_id=run.id,
            position=0,
            attempt=1,
            name="s0",
            uses="command",
            machine=node.machine_id,
        )
    await made.begin(world, run.operation_id)
    return run


async def test_a_run_whose_workflow_is_lost_has_failed_and_says_so(watched: Watched, world: World) -> None:
    run = await at_work(world)
    operation = await watched.round(run.operation_id)
    assert operation.state == RunState.FAILED
    card = FailureCard.model_validate(operation.card)
    assert card.failure_class is FailureClass.INTERNAL
    assert "the workflow engine no longer knows it" in card.message
    assert (await made.node_of(world, run)).status == NodeStatus.FAILED
    assert await made.told(world, run.operation_id) == [(PROVE, run.id, None)]


async def test_a_cancel_whose_workflow_is_lost_ends_as_cancelled_and_its_machine_is_proved(
    watched: Watched, world: World
) -> None:
    run = await at_work(world)
    await made.cancel(world, run.operation_id)
    operation = await watched.round(run.operation_id)
    assert operation.state == RunState.CANCELED
    ended = (await made.runs_of(world, run.operation_id))[run.name]
    assert ended.state == RunState.CANCELED
    card = FailureCard.model_validate(ended.card)
    assert card.failure_class is FailureClass.CANCELLED
    assert "was cancelled, but the workflow" in card.message
    assert card.message.endswith(f" by {made.ACTOR}")
    assert (PROVE, run.id, None) in await made.told(world, run.operation_id)
    step = await world.one(select(StepRun).where(StepRun.run_id == run.id))
    assert step.ended_at is not None


async def test_what_is_past_its_deadline_is_cancelled_once_and_says_so(
    watched: Watched, world: World
) -> None:
    run = await at_work(world)
    await watched.started(run.operation_id)
    await world.set(Operation, Operation.id == run.operation_id, deadline=LONG_AGO, message="added 1 of 2")
    operation = await watched.round(run.operation_id)
    assert (operation.state, operation.message) == (RunState.CANCELING, f"added 1 of 2; {OVERDUE}")
    assert operation.canceled_by == "the watchdog, at the operation's deadline"
    assert await made.told(world, run.operation_id) == [(RunState.CANCELED, None, None)]


async def test_what_somebody_has_cancelled_is_not_asked_again_at_its_deadline(
    watched: Watched, world: World
) -> None:
    run = await at_work(world)
    await watched.started(run.operation_id)
    await made.cancel(world, run.operation_id)
    await world.set(Operation, Operation.id == run.operation_id, deadline=LONG_AGO)
    after = await watched.round(run.operation_id)
    assert (after.canceled_by, after.message) == (made.ACTOR, "")


async def test_a_terminate_past_its_deadline_has_its_steps_cut_short_once(
    watched: Watched, world: World
) -> None:
    _, node = await created(world)
    run_id = await terminating(world, node)
    run = await world.one(select(Run).where(Run.id == run_id))
    handle = await watched.started(run.operation_id)
    await world.set(Operation, Operation.id == run.operation_id, deadline=LONG_AGO)
    operation = await watched.round(run.operation_id)
    assert (operation.message, operation.canceled_by) == (OVERDUE, None)
    asked = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED
    assert [event.event_type for event in (await handle.fetch_history()).events].count(asked) == 1


async def test_what_is_held_has_no_deadline(watched: Watched, world: World) -> None:
    operation_id = await made.held_create(world)
    await watched.started(operation_id)
    await world.set(Operation, Operation.id == operation_id, deadline=datetime.now(UTC) - timedelta(days=9))
    operation = await watched.round(operation_id)
    assert (operation.state, operation.message) == (RunState.HELD, "")


async def test_a_reservation_is_given_back_when_its_time_is_over(watched: Watched, world: World) -> None:
    await world.machines(1)
    async with world.database.begin() as session:
        seen = await find_pool(session, world.tenant, world.pool_id)
        asked = NewReservation({"gpu": 3}, expires_at=datetime.now(UTC) + timedelta(seconds=0.3))
        made = await create_reservation(
            session, tenant_id=world.tenant, actor="tester", seen=seen, asked=asked
        )

    async def ended() -> bool:
        return await world.count(Reservation, Reservation.id == made.id, Reservation.state == "ended") == 1

    async with running(Watchdog(watched.database, watched.client, round_seconds=0.05)):
        await eventually(ended)
    live = (Booking.reservation_id == made.id, Booking.released_at.is_(None))
    assert await world.count(Booking, *live) == 0
    row = await world.one(select(QuotaRow).where(QuotaRow.pool_id == world.pool_id))
    assert row.in_use == 0
