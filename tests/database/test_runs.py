"""Claims, generations, custody and step records: the rules that keep two runs off one machine."""

import uuid
from typing import Any

import pytest
from sqlalchemy import select

from database.custody import hand_over_node
from database.machine_runs import node_ready
from database.operations import NewRun, submit_operation
from database.run_locks import SupersededError
from database.runs import MachineClaimedError, claim_machine, end_run
from database.set_requests import SetRequest
from database.steps import (
    CHUNK,
    STDERR,
    STDOUT,
    StaleWriterError,
    StepEnd,
    append_log,
    begin_step,
    end_step,
    log_tail,
)
from database.tables import (
    Booking,
    Claim,
    LogChunk,
    Machine,
    Node,
    Operation,
    QuotaRow,
    Reservation,
    Run,
    StepRun,
)
from database.unit_of_work import Database
from domain.failures import FailureClass, failure_card
from domain.states import NodeStatus, RunState
from tests.database.world import World


async def created(world: World, **machine: Any) -> tuple[Run, Node]:
    """One node that was just created on one machine with eight GPUs, and its run."""
    await world.machines(1, **machine)
    made = await world.create([SetRequest("gpu", 1)])
    run = await world.one(select(Run).where(Run.operation_id == made.operation_id))
    node = await world.one(select(Node).where(Node.id == run.node_id))
    return run, node


async def another_run(world: World, node: Node, *, generation: int, action: str = "terminate") -> uuid.UUID:
    """A further run of the node, for a generation."""
    operation_id = uuid.uuid4()
    async with world.database.begin() as session:
        await submit_operation(
            session,
            operation_id=operation_id,
            tenant_id=world.tenant,
            action=action,
            actor="tester",
            runs=[NewRun(name=node.name, generation=generation, node_id=node.id)],
        )
    run: Run = await world.one(select(Run).where(Run.operation_id == operation_id))
    return run.id


async def token_of(database: Database, run_id: uuid.UUID) -> int | None:
    async with database.begin() as session:
        run, _ = await claim_machine(session, run_id)
        return run.claim_token


async def test_a_claim_raises_the_token_once_and_a_repeat_keeps_it(world: World) -> None:
    run, node = await created(world)
    assert await token_of(world.database, run.id) == 1
    assert await token_of(world.database, run.id) == 1
    node = await world.one(select(Node).where(Node.id == node.id))
    assert (node.status, node.instance_id) == (NodeStatus.PREPARING, node.machine_id)


async def test_a_newer_run_of_the_same_node_takes_over_under_a_higher_token(world: World) -> None:
    run, node = await created(world)
    await token_of(world.database, run.id)
    await world.set(Node, Node.id == node.id, generation=2)
    newer = await another_run(world, node, generation=2)
    assert await token_of(world.database, newer) == 2
    with pytest.raises(SupersededError, match="moved on"):
        await token_of(world.database, run.id)


async def test_a_machine_that_a_live_run_of_another_holds_is_not_taken(world: World) -> None:
    run, node = await created(world)
    async with world.database.begin() as session:
        operation_id = uuid.uuid4()
        await submit_operation(
            session,
            operation_id=operation_id,
            tenant_id=world.tenant,
            action="clean",
            actor="tester",
            runs=[NewRun(name="m", generation=1, machine_id=node.machine_id)],
        )
    cleaning = await world.one(select(Run).where(Run.operation_id == operation_id))
    await token_of(world.database, cleaning.id)
    with pytest.raises(MachineClaimedError, match="is held by clean"):
        await token_of(world.database, run.id)
    await world.set(Run, Run.id == cleaning.id, state=RunState.SUCCEEDED)
    assert await token_of(world.database, run.id) == 2


async def test_what_a_superseded_run_records_does_not_touch_the_node(world: World) -> None:
    run, node = await created(world)
    await token_of(world.database, run.id)
    await world.set(Node, Node.id == node.id, generation=2)
    with pytest.raises(SupersededError):
        async with world.database.begin() as session:
            await node_ready(session, run.id, hostname="x", address="192.0.2.1")
    async with world.database.begin() as session:
        assert await end_run(session, run.id, RunState.FAILED, None) is RunState.SUPERSEDED
    after = await world.one(select(Node).where(Node.id == node.id))
    assert (after.status, after.hostname) == (NodeStatus.PREPARING, None)


async def test_the_first_end_of_a_run_stands(world: World) -> None:
    run, node = await created(world)
    await token_of(world.database, run.id)
    card = failure_card(FailureClass.EXIT, "exited with status 1", seen=node.created_at)
    async with world.database.begin() as session:
        await end_run(session, run.id, RunState.FAILED, card)
    async with world.database.begin() as session:
        assert await end_run(session, run.id, RunState.CANCELED, None) is RunState.FAILED
    after = await world.one(select(Node).where(Node.id == node.id))
    assert after.status == NodeStatus.FAILED
    assert "exited with status 1" in after.message


async def terminated(world: World, node: Node, *, problem: bool = False) -> None:
    await world.set(
        Node, Node.id == node.id, generation=2, status=NodeStatus.TERMINATING, target_state="Terminated"
    )
    run_id = await another_run(world, node, generation=2)
    card = failure_card(FailureClass.EXIT, "could not wipe", seen=node.created_at) if problem else None
    for _ in range(2):
        async with world.database.begin() as session:
            await hand_over_node(session, run_id, card)


async def test_custody_gives_back_quota_booking_reservation_and_name(world: World) -> None:
    _, node = await created(world, bmc_address=f"sandbox://{uuid.uuid4().hex}")
    quota = select(QuotaRow).where(QuotaRow.pool_id == world.pool_id, QuotaRow.resource == "gpu")
    assert (await world.one(quota)).in_use == 8
    await terminated(world, node)
    assert (await world.one(quota)).in_use == 0
    assert (
        await world.count(Booking, Booking.machine_id == node.machine_id, Booking.released_at.is_(None)) == 0
    )
    reservation = await world.one(select(Reservation).where(Reservation.id == node.reservation_id))
    assert reservation.state == "ended"
    machine = await world.one(select(Machine).where(Machine.id == node.machine_id))
    assert machine.state == "cleaning"
    cleans = (Operation.machine_id == node.machine_id, Operation.action == "clean")
    assert await world.count(Operation, *cleans) == 1
    await world.machines(1)
    made = await world.create([SetRequest("gpu", 1)])
    again = await world.one(select(Run).where(Run.operation_id == made.operation_id))
    assert again.name == node.name


@pytest.mark.parametrize(("problem", "state"), [(True, "failed"), (False, "cleaning")])
async def test_a_machine_that_nothing_can_wipe_is_held_back_when_its_clean_up_failed(
    world: World, problem: bool, state: str
) -> None:
    _, node = await created(world)
    await terminated(world, node, problem=problem)
    machine = await world.one(select(Machine).where(Machine.id == node.machine_id))
    assert machine.state == state
    assert ("could not wipe" in machine.message) is problem


async def step_of(world: World) -> StepRun:
    run, node = await created(world)
    async with world.database.begin() as session:
        return await begin_step(
            session,
            run_id=run.id,
            position=0,
            attempt=1,
            name="one",
            uses="command",
            machine=str(node.machine_id),
        )


async def test_of_two_writers_of_one_log_only_one_can_append_at_a_place(world: World) -> None:
    step = await step_of(world)
    data = bytes(range(256)) * 600
    async with world.database.begin() as session:
        await append_log(session, step, STDOUT, 0, data)
    with pytest.raises(StaleWriterError) as late:
        async with world.database.begin() as session:
            await append_log(session, step, STDOUT, 0, b"again")
    assert late.value.size == len(data)
    async with world.database.begin() as session:
        await append_log(session, step, STDOUT, len(data), b"end")
        assert await log_tail(session, step, STDOUT, 1_000_000) == data + b"end"
        assert await log_tail(session, step, STDERR, 10) == b""
        sizes = await session.scalars(select(LogChunk.data).where(LogChunk.step_run_id == step.id))
        assert max(len(chunk) for chunk in sizes) == CHUNK


async def test_the_first_record_of_a_steps_end_stands(world: World) -> None:
    step = await step_of(world)
    async with world.database.begin() as session:
        await end_step(session, step.id, StepEnd(state=RunState.SUCCEEDED, outcome="ran", exit_status=0))
    async with world.database.begin() as session:
        await end_step(session, step.id, StepEnd(state=RunState.FAILED))
    after = await world.one(select(StepRun).where(StepRun.id == step.id))
    assert (after.state, after.outcome) == (RunState.SUCCEEDED, "ran")


async def test_every_machine_has_one_claim_row_from_the_start(world: World) -> None:
    (machine,) = await world.machines(1)
    assert (await world.one(select(Claim).where(Claim.machine_id == machine))).token == 0
