"""What callers decide about operations, each in a transaction of its own, and what becomes of the rows."""

import hashlib
import json
import uuid
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from sqlalchemy import Select, select

from database.cancellation import cancel_operation
from database.holding import decide, hold_run
from database.operation_queries import find_operation
from database.operations import NewRun, close_operation, submit_operation
from database.retrying import Retry, RetryFrom, retry_operation
from database.run_ends import end_run
from database.set_requests import SetRequest
from database.steps import StepEnd, begin_step, end_step, store_plan
from database.tables import Node, Operation, Outbox, Run
from domain.failures import FailureCard, FailureClass, failure_card
from domain.holds import Verdict
from domain.states import RunState
from domain.unfinished import Unfinished
from tests.database.scenes import claimed
from tests.database.world import World

ALL_KINDS = frozenset(Unfinished)
ACTOR = "somebody"


def card(
    failure_class: FailureClass = FailureClass.EXIT, message: str = "exited with status 3"
) -> FailureCard:
    """A failure as a step reports it."""
    return failure_card(failure_class, message, seen=datetime.now(UTC), step="s3")


def plan_content(name: str) -> str:
    """A plan that no other run has; what is in it is of no interest here."""
    return json.dumps({"plan of": name})


def plan_digest(name: str) -> str:
    """The digest under which it is kept."""
    return digest_of(plan_content(name))


def digest_of(content: str) -> str:
    """The digest of a plan's text."""
    return f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"


async def created_nodes(world: World, count: int) -> uuid.UUID:
    """The operation of a create of this many nodes, each on a machine of its own."""
    await world.machines(count)
    made = await world.create([SetRequest("gpu", count)])
    assert made.sets[0].added == count
    return made.operation_id


async def runs_of(world: World, operation_id: uuid.UUID) -> dict[str, Run]:
    """The runs of an operation by name, in their order."""
    async with world.database.begin() as session:
        rows = await session.scalars(
            select(Run).where(Run.operation_id == operation_id).order_by(Run.position)
        )
        return {run.name: run for run in rows}


async def states_of(world: World, operation_id: uuid.UUID) -> dict[str, str]:
    """The states of an operation's runs by name."""
    return {name: run.state for name, run in (await runs_of(world, operation_id)).items()}


async def node_of(world: World, run: Run) -> Node:
    """The node that a run is for, as it is now."""
    return await world.one(select(Node).where(Node.id == run.node_id))


async def operation(world: World, operation_id: uuid.UUID) -> Operation:
    """An operation as it is now."""
    return await world.one(select(Operation).where(Operation.id == operation_id))


def outbox(operation_id: uuid.UUID) -> Select[Outbox]:
    """The rows that the dispatcher is to tell of an operation, in order."""
    return select(Outbox).where(Outbox.operation_id == operation_id).order_by(Outbox.id)


async def told(world: World, operation_id: uuid.UUID) -> list[tuple[str, uuid.UUID | None, int | None]]:
    """What the dispatcher is to tell of an operation after its start, in order."""
    async with world.database.begin() as session:
        rows = await session.scalars(outbox(operation_id))
        return [(row.desired, row.run_id, row.hold) for row in rows][1:]


async def cancel(
    world: World, operation_id: uuid.UUID, names: Sequence[str] | None = None, *, actor: str = ACTOR
) -> list[str]:
    """Asks for an end."""
    async with world.database.begin() as session:
        found = await find_operation(session, world.tenant, str(operation_id))
        return await cancel_operation(session, found, actor=actor, names=names)


async def retry(
    world: World,
    operation_id: uuid.UUID,
    *,
    only: Collection[Unfinished] = ALL_KINDS,
    names: Sequence[str] | None = None,
    begin: RetryFrom = RetryFrom.STOPPED,
    request_id: str | None = None,
) -> Retry:
    """Asks for another try."""
    async with world.database.begin() as session:
        found = await find_operation(session, world.tenant, str(operation_id))
        return await retry_operation(
            session, found, actor=ACTOR, only=only, names=names, begin=begin, request_id=request_id
        )


async def verdict(
    world: World, operation_id: uuid.UUID, decided: Verdict, names: Sequence[str] | None = None
) -> list[str]:
    """Decides about held runs."""
    async with world.database.begin() as session:
        found = await find_operation(session, world.tenant, str(operation_id))
        return await decide(session, found, decided, actor=ACTOR, names=names)


async def begin(world: World, operation_id: uuid.UUID) -> None:
    """The operation has been started."""
    await world.set(Operation, Operation.id == operation_id, state=RunState.RUNNING)


async def hold(world: World, run: Run, number: int = 1) -> None:
    """A step of the run failed, and says `onFailure: hold`."""
    async with world.database.begin() as session:
        await hold_run(session, run.id, number, card())


async def machine_operation(world: World, machine: str, name: str, action: str) -> uuid.UUID:
    """An operation about one machine, as custody and joins put them in."""
    operation_id = uuid.uuid4()
    async with world.database.begin() as session:
        await submit_operation(
            session,
            operation_id=operation_id,
            tenant_id=world.tenant,
            action=action,
            actor=ACTOR,
            runs=[NewRun(name=name, generation=1, machine_id=machine)],
            machine_id=machine,
        )
    return operation_id


async def held_create(world: World, count: int = 1) -> uuid.UUID:
    """A create whose first node is held, the others at work."""
    operation_id = await created_nodes(world, count)
    await begin(world, operation_id)
    runs = list((await runs_of(world, operation_id)).values())
    for run in runs:
        await claimed(world, run.id)
    await hold(world, runs[0])
    return operation_id


async def end(world: World, run: Run, state: RunState, failure: FailureCard | None = None) -> None:
    """The run did not succeed."""
    async with world.database.begin() as session:
        await end_run(session, run.id, state, failure)


async def close(world: World, operation_id: uuid.UUID) -> RunState:
    """The operation's workflow has ended."""
    async with world.database.begin() as session:
        return await close_operation(session, operation_id)


async def worked(world: World, run: Run, done: int, *, failed: bool = True, outcome: str = "changed") -> None:
    """The run has its machine and its plan, did `done` steps, and began another one that failed."""
    await claimed(world, run.id)
    machine = run.machine_id or (await node_of(world, run)).machine_id
    assert machine is not None
    ends = [StepEnd(RunState.SUCCEEDED, outcome=outcome, exit_status=0)] * done
    ends += [StepEnd(RunState.FAILED, outcome=outcome, exit_status=3, card=card())] if failed else []
    async with world.database.begin() as session:
        await store_plan(session, run.id, plan_digest(run.name), plan_content(run.name))
        for position, ending in enumerate(ends):
            step = await begin_step(
                session,
                run_id=run.id,
                position=position,
                attempt=1,
                name=f"s{position}",
                uses="command",
                machine=machine,
            )
            await end_step(session, step, ending)
