"""Claims and generations: the rules that keep two runs off one machine, and old runs off a node."""

from datetime import UTC, datetime

import pytest
from sqlalchemy import select

from database.machine_runs import node_ready
from database.operations import NewRun
from database.run_ends import end_run
from database.run_locks import RunCanceledError, SupersededError
from database.runs import MachineClaimedError
from database.steps import begin_step, machine_of_steps, may_have_left_something
from database.tables import PROVE, Claim, Event, Node, Outbox, Run
from domain.failures import FailureClass, failure_card
from domain.states import NodeStatus, RunState
from tests.database.scenes import claimed, created, submit
from tests.database.world import World


async def next_generation(world: World, node: Node) -> NewRun:
    """Moves the node on, as a newer request does; returns the run that the newer one needs."""
    await world.set(Node, Node.id == node.id, generation=node.generation + 1)
    return NewRun(name=node.name, generation=node.generation + 1, node_id=node.id)


async def test_every_machine_has_one_claim_row_from_the_start(world: World) -> None:
    (machine,) = await world.machines(1)
    assert (await world.one(select(Claim).where(Claim.machine_id == machine))).token == 0


async def test_a_claim_raises_the_token_once_and_a_repeat_keeps_it(world: World) -> None:
    run, node = await created(world)
    assert await claimed(world, run.id) == 1
    assert await claimed(world, run.id) == 1
    claim = await world.one(select(Claim).where(Claim.machine_id == node.machine_id))
    assert (claim.token, claim.run_id) == (1, run.id)
    told = (Event.subject == f"machine/{node.machine_id}", Event.type == "machine.claimed")
    assert await world.count(Event, *told) == 1
    node = await world.one(select(Node).where(Node.id == node.id))
    assert (node.status, node.instance_id) == (NodeStatus.PREPARING, node.machine_id)
    assert (await world.one(select(Run).where(Run.id == run.id))).state == RunState.RUNNING


async def test_a_newer_run_of_the_same_node_takes_over_under_a_higher_token(world: World) -> None:
    run, node = await created(world)
    await claimed(world, run.id)
    newer = await submit(world, await next_generation(world, node), action="terminate")
    assert await claimed(world, newer) == 2
    with pytest.raises(SupersededError, match="moved on"):
        await claimed(world, run.id)


async def test_a_machine_that_a_live_run_about_the_machine_holds_is_not_taken(world: World) -> None:
    run, node = await created(world)
    cleaning = await submit(world, NewRun(name="m", generation=1, machine_id=node.machine_id))
    await claimed(world, cleaning)
    with pytest.raises(MachineClaimedError, match="is held by clean of m"):
        await claimed(world, run.id)
    await world.set(Run, Run.id == cleaning, state=RunState.SUCCEEDED)
    assert await claimed(world, run.id) == 2


async def test_a_machine_that_another_nodes_live_run_holds_is_not_taken(world: World) -> None:
    holder, node = await created(world)
    await claimed(world, holder.id)
    run, other = await created(world)
    await world.set(Node, Node.id == other.id, machine_id=node.machine_id)
    with pytest.raises(MachineClaimedError, match=f"is held by create of {node.name}"):
        await claimed(world, run.id)
    claim = await world.one(select(Claim).where(Claim.machine_id == node.machine_id))
    assert (claim.token, claim.run_id) == (1, holder.id)
    await world.set(Run, Run.id == holder.id, state=RunState.FAILED)
    assert await claimed(world, run.id) == 2


async def test_a_run_about_a_machine_does_not_take_it_from_a_nodes_live_run(world: World) -> None:
    run, node = await created(world)
    await claimed(world, run.id)
    cleaning = await submit(world, NewRun(name="m", generation=1, machine_id=node.machine_id))
    with pytest.raises(MachineClaimedError, match=f"is held by create of {node.name}"):
        await claimed(world, cleaning)


async def test_a_run_whose_node_moved_on_claims_nothing(world: World) -> None:
    run, node = await created(world)
    await next_generation(world, node)
    with pytest.raises(SupersededError, match="moved on"):
        await claimed(world, run.id)
    claim = await world.one(select(Claim).where(Claim.machine_id == node.machine_id))
    assert (claim.token, claim.run_id) == (0, None)


@pytest.mark.parametrize(
    ("state", "error", "said"),
    [
        (RunState.FAILED, SupersededError, "already ended: failed"),
        (RunState.SUPERSEDED, SupersededError, "already ended: superseded"),
        (RunState.CANCELED, RunCanceledError, "was cancelled by somebody"),
    ],
)
async def test_a_run_that_has_ended_claims_nothing(
    world: World, state: RunState, error: type[Exception], said: str
) -> None:
    run, _ = await created(world)
    await world.set(Run, Run.id == run.id, state=state, canceled_by="somebody")
    with pytest.raises(error, match=said):
        await claimed(world, run.id)


async def test_a_node_that_was_made_ready_is_made_ready_again_in_vain(world: World) -> None:
    run, node = await created(world)
    await claimed(world, run.id)
    for _ in range(2):
        async with world.database.begin() as session:
            await node_ready(session, run.id, hostname="x", address="192.0.2.1")
    assert await world.count(Event, Event.subject == f"node/{node.id}", Event.type == "node.ready") == 1


async def test_what_a_run_without_workflow_left_running_is_to_be_ended_on_its_machine(world: World) -> None:
    run, node = await created(world)
    await claimed(world, run.id)
    machine = str(node.machine_id)
    card = failure_card(FailureClass.INTERNAL, "the workflow is gone", seen=datetime.now(UTC))
    async with world.database.begin() as session:
        await begin_step(
            session, run_id=run.id, position=0, attempt=1, name="one", uses="command", machine=machine
        )
        await end_run(session, run.id, RunState.FAILED, card)
    async with world.database.begin() as session:
        await end_run(session, run.id, RunState.FAILED, card)
        assert await machine_of_steps(session, run.id) == machine
        assert await may_have_left_something(session, run.id)
    assert await world.count(Outbox, Outbox.run_id == run.id, Outbox.desired == PROVE) == 1


async def test_a_node_is_not_made_ready_by_a_run_of_an_older_generation(world: World) -> None:
    run, node = await created(world)
    await claimed(world, run.id)
    await next_generation(world, node)
    with pytest.raises(SupersededError, match="moved on"):
        async with world.database.begin() as session:
            await node_ready(session, run.id, hostname="x", address="192.0.2.1")
    after = await world.one(select(Node).where(Node.id == node.id))
    assert (after.status, after.hostname, after.private_ip) == (NodeStatus.PREPARING, None, None)


async def test_a_superseded_run_ends_as_such_and_does_not_touch_the_node(world: World) -> None:
    run, node = await created(world)
    await claimed(world, run.id)
    await next_generation(world, node)
    before = await world.one(select(Node).where(Node.id == node.id))
    for _ in range(2):
        async with world.database.begin() as session:
            assert await end_run(session, run.id, RunState.FAILED, None) is RunState.SUPERSEDED
    assert (await world.one(select(Run).where(Run.id == run.id))).state == RunState.SUPERSEDED
    after = await world.one(select(Node).where(Node.id == node.id))
    assert (after.status, after.message, after.updated_at) == (
        NodeStatus.PREPARING,
        before.message,
        before.updated_at,
    )


async def test_the_first_end_of_a_run_stands(world: World) -> None:
    run, node = await created(world)
    await claimed(world, run.id)
    card = failure_card(FailureClass.EXIT, "exited with status 1", seen=node.created_at)
    async with world.database.begin() as session:
        assert await end_run(session, run.id, RunState.FAILED, card) is RunState.FAILED
    first = await world.one(select(Run).where(Run.id == run.id))
    async with world.database.begin() as session:
        assert await end_run(session, run.id, RunState.CANCELED, None) is RunState.FAILED
    again = await world.one(select(Run).where(Run.id == run.id))
    assert (again.state, again.card, again.ended_at) == (RunState.FAILED, first.card, first.ended_at)
    after = await world.one(select(Node).where(Node.id == node.id))
    assert after.status == NodeStatus.FAILED
    assert "exited with status 1" in after.message
    ends = (Event.subject == f"node/{node.id}", Event.type.startswith("node.create."))
    assert await world.count(Event, *ends) == 1
