"""Cancelling: what has not begun ends at once, what runs is marked and told, and nothing is left open."""

import asyncio
import uuid

import pytest
from sqlalchemy import select

from database.operations import NewRun
from database.refusals import Refusal, RefusalCode
from database.run_locks import RunCanceledError, SupersededError, share_live_run
from database.runs import begin_operation
from database.tables import Event, Machine, Node, Operation, Run
from domain.states import FINAL_RUN_STATES, MachineState, NodeStatus, RunState
from tests.database import decisions as made
from tests.database.scenes import claimed, created, submit, terminating
from tests.database.world import World, statements_of

_WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


async def test_before_it_was_dispatched_every_run_ends_at_once_and_the_engine_is_told(world: World) -> None:
    operation_id = await made.created_nodes(world, 2)
    assert await made.cancel(world, operation_id) == ["gpu-1", "gpu-2"]
    runs = await made.runs_of(world, operation_id)
    assert {run.state for run in runs.values()} == {RunState.CANCELED}
    assert all(run.ended_at and run.canceled_by == made.ACTOR for run in runs.values())
    asked = await made.operation(world, operation_id)
    assert (asked.state, asked.canceled_by, asked.ended_at) == (RunState.CANCELING, made.ACTOR, None)
    assert await made.told(world, operation_id) == [(RunState.CANCELED, None, None)]
    assert await made.close(world, operation_id) is RunState.CANCELED


async def test_its_node_says_who_cancelled_it_keeps_its_machine_and_can_be_terminated(world: World) -> None:
    run, node = await created(world)
    await made.cancel(world, run.operation_id)
    after = await made.node_of(world, run)
    assert (after.status, after.machine_id) == (NodeStatus.FAILED, node.machine_id)
    assert after.card is not None
    assert after.card["message"] == f"create of {node.name} was cancelled before it had begun by {made.ACTOR}"
    assert after.card["failure_class"] == "cancelled"
    await terminating(world, after)


async def test_a_cancelled_operation_is_not_marked_as_running_by_a_late_start(world: World) -> None:
    operation_id = await made.created_nodes(world, 1)
    await made.cancel(world, operation_id)
    async with world.database.begin() as session:
        await begin_operation(session, operation_id)
    assert (await made.operation(world, operation_id)).state == RunState.CANCELING


async def test_a_run_that_has_its_machine_is_only_marked_and_may_begin_nothing_new(world: World) -> None:
    operation_id = await made.created_nodes(world, 2)
    runs = await made.runs_of(world, operation_id)
    await claimed(world, runs["gpu-1"].id)
    assert await made.cancel(world, operation_id) == ["gpu-1", "gpu-2"]
    after = await made.runs_of(world, operation_id)
    assert (after["gpu-1"].state, after["gpu-1"].ended_at) == (RunState.CANCELING, None)
    assert after["gpu-2"].state == RunState.CANCELED
    assert (await made.node_of(world, runs["gpu-1"])).status == NodeStatus.PREPARING
    with pytest.raises(RunCanceledError, match=f"cancelled by {made.ACTOR}"):
        await claimed(world, runs["gpu-1"].id)
    with pytest.raises(RunCanceledError):
        await claimed(world, runs["gpu-2"].id)
    assert await made.close(world, operation_id) is RunState.CANCELING


async def test_of_some_names_only_these_end_and_only_what_runs_is_told(world: World) -> None:
    operation_id = await made.created_nodes(world, 4)
    await made.begin(world, operation_id)
    runs = await made.runs_of(world, operation_id)
    await claimed(world, runs["gpu-2"].id)
    await claimed(world, runs["gpu-4"].id)
    assert await made.cancel(world, operation_id, ["gpu-2", "gpu-1", "gpu-1"]) == ["gpu-1", "gpu-2"]
    assert await made.states_of(world, operation_id) == {
        "gpu-1": RunState.CANCELED,
        "gpu-2": RunState.CANCELING,
        "gpu-3": RunState.PENDING,
        "gpu-4": RunState.RUNNING,
    }
    asked = await made.operation(world, operation_id)
    assert (asked.state, asked.canceled_by) == (RunState.RUNNING, None)
    assert await made.told(world, operation_id) == [(RunState.CANCELED, runs["gpu-2"].id, None)]


async def test_an_operation_whose_other_nodes_succeeded_has_partially_succeeded(world: World) -> None:
    operation_id = await made.created_nodes(world, 2)
    await made.cancel(world, operation_id, ["gpu-1"])
    await world.set(Run, (Run.operation_id == operation_id) & (Run.name == "gpu-2"), state=RunState.SUCCEEDED)
    assert await made.close(world, operation_id) is RunState.PARTIALLY_SUCCEEDED


async def test_a_second_cancel_answers_the_same_and_adds_nothing(world: World) -> None:
    operation_id = await made.created_nodes(world, 2)
    await claimed(world, (await made.runs_of(world, operation_id))["gpu-1"].id)
    await made.cancel(world, operation_id)
    before = await made.runs_of(world, operation_id)
    assert await made.cancel(world, operation_id, actor="another") == ["gpu-1"]
    after = await made.runs_of(world, operation_id)
    assert [(run.state, run.canceled_by, run.ended_at) for run in after.values()] == [
        (run.state, run.canceled_by, run.ended_at) for run in before.values()
    ]
    assert (await made.operation(world, operation_id)).canceled_by == made.ACTOR
    assert len(await made.told(world, operation_id)) == 1
    asked = (Event.subject == f"operation/{operation_id}", Event.type == "operation.canceling")
    assert await world.count(Event, *asked) == 1


async def test_a_second_cancel_of_names_answers_the_same_and_tells_nobody_twice(world: World) -> None:
    operation_id = await made.created_nodes(world, 3)
    await claimed(world, (await made.runs_of(world, operation_id))["gpu-1"].id)
    for _ in range(2):
        assert await made.cancel(world, operation_id, ["gpu-1", "gpu-2"]) == ["gpu-1", "gpu-2"]
    assert len(await made.told(world, operation_id)) == 1


async def test_all_of_it_can_be_cancelled_after_some_of_it(world: World) -> None:
    operation_id = await made.created_nodes(world, 2)
    await made.cancel(world, operation_id, ["gpu-1"])
    assert await made.cancel(world, operation_id) == ["gpu-2"]
    assert await made.told(world, operation_id) == [(RunState.CANCELED, None, None)]
    assert await made.close(world, operation_id) is RunState.CANCELED
    assert await made.cancel(world, operation_id) == []


@pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.FAILED, RunState.PARTIALLY_SUCCEEDED])
async def test_what_has_ended_otherwise_is_refused_with_its_end(world: World, state: RunState) -> None:
    operation_id = await made.created_nodes(world, 1)
    await world.set(Run, Run.operation_id == operation_id, state=RunState.FAILED)
    await made.close(world, operation_id)
    await world.set(Operation, Operation.id == operation_id, state=state)
    with pytest.raises(Refusal, match=f"already ended: {state}") as refused:
        await made.cancel(world, operation_id)
    assert refused.value.code is RefusalCode.INVALID_STATE


async def test_names_whose_runs_have_ended_are_refused_only_when_none_is_left(world: World) -> None:
    operation_id = await made.created_nodes(world, 2)
    runs = await made.runs_of(world, operation_id)
    await made.end(world, runs["gpu-1"], RunState.FAILED, made.card())
    with pytest.raises(Refusal, match="nothing left to cancel: gpu-1 is failed") as refused:
        await made.cancel(world, operation_id, ["gpu-1"])
    assert refused.value.code is RefusalCode.INVALID_STATE
    assert await made.cancel(world, operation_id, ["gpu-1", "gpu-2"]) == ["gpu-2"]


async def test_a_terminate_is_refused_and_goes_on(world: World) -> None:
    _, node = await created(world)
    run_id = await terminating(world, node)
    run = await world.one(select(Run).where(Run.id == run_id))
    with pytest.raises(Refusal, match="a terminate cannot be cancelled") as refused:
        await made.cancel(world, run.operation_id)
    assert refused.value.code is RefusalCode.INVALID_STATE
    assert await claimed(world, run_id) == 1


async def test_unknown_names_are_all_named_with_those_that_there_are_and_nothing_is_done(
    world: World,
) -> None:
    operation_id = await made.created_nodes(world, 2)
    with pytest.raises(Refusal) as refused:
        await made.cancel(world, operation_id, ["gpu-1", "nope", "gpu-7"])
    assert refused.value.code is RefusalCode.INVALID_INPUT
    assert [detail.path for detail in refused.value.details] == ["names[1]", "names[2]"]
    assert "there are: gpu-1, gpu-2" in refused.value.message
    assert set((await made.states_of(world, operation_id)).values()) == {RunState.PENDING}


async def test_a_node_that_has_moved_on_is_left_to_its_newer_run(world: World) -> None:
    run, node = await created(world)
    newer = await terminating(world, node)
    await made.cancel(world, run.operation_id)
    assert (await world.one(select(Run).where(Run.id == run.id))).state == RunState.SUPERSEDED
    assert (await made.node_of(world, run)).status == NodeStatus.TERMINATING
    assert (await world.one(select(Run).where(Run.id == newer))).state == RunState.PENDING


@pytest.mark.parametrize(
    ("action", "state"), [("join", MachineState.JOINING), ("clean", MachineState.CLEANING)]
)
async def test_a_machine_whose_join_or_clean_up_was_cancelled_is_failed_never_ready(
    world: World, action: str, state: MachineState
) -> None:
    (machine,) = await world.machines(1, state=state)
    run_id = await submit(world, NewRun(name="m-1", generation=1, machine_id=machine), action=action)
    run = await world.one(select(Run).where(Run.id == run_id))
    assert await made.cancel(world, run.operation_id) == ["m-1"]
    after = await world.one(select(Machine).where(Machine.id == machine))
    assert after.state == MachineState.FAILED
    assert f"{action} of m-1 was cancelled before it had begun by {made.ACTOR}. " in after.message


async def test_a_cancel_and_a_claim_that_race_leave_one_of_two_right_ends(world: World) -> None:
    for _ in range(12):
        run, _ = await created(world)
        claim, _ = await asyncio.gather(
            claimed(world, run.id), made.cancel(world, run.operation_id), return_exceptions=True
        )
        after = await world.one(select(Run).where(Run.id == run.id))
        status = (await made.node_of(world, run)).status
        if isinstance(claim, BaseException):
            assert isinstance(claim, RunCanceledError | SupersededError), claim
            assert (after.state, after.claim_token, status) == (RunState.CANCELED, None, NodeStatus.FAILED)
        else:
            assert (after.state, after.claim_token, status) == (RunState.CANCELING, 1, NodeStatus.PREPARING)


@pytest.mark.parametrize("first", ["claim", "cancel"])
async def test_whoever_comes_second_sees_what_the_first_one_did(world: World, first: str) -> None:
    run, _ = await created(world)
    claim, cancel = claimed(world, run.id), made.cancel(world, run.operation_id)
    async with world.database.begin() as session:
        # Both wait for this lock, and are let go in the order in which they came.
        await session.execute(select(Node).where(Node.id == run.node_id).with_for_update())
        order = [claim, cancel] if first == "claim" else [cancel, claim]
        tasks = []
        for coming in order:
            tasks.append(asyncio.ensure_future(coming))
            await _waiting(world, len(tasks))
    results = await asyncio.gather(*tasks, return_exceptions=True)
    after = await world.one(select(Run).where(Run.id == run.id))
    if first == "claim":
        assert results == [1, [run.name]]
        assert after.state == RunState.CANCELING
    else:
        assert results[0] == [run.name]
        assert isinstance(results[1], RunCanceledError)
        assert after.state == RunState.CANCELED


async def _waiting(world: World, count: int) -> None:
    """Returns once this many of this database's sessions wait for a lock."""
    async with asyncio.timeout(10):
        while await world.fetch(_WAITING) < count:  # noqa: ASYNC110  # the condition lies in another process
            await asyncio.sleep(0.01)


async def test_two_cancels_at_once_are_one(world: World) -> None:
    operation_id = await made.created_nodes(world, 3)
    await asyncio.gather(*(made.cancel(world, operation_id, actor=f"a{n}") for n in range(5)))
    assert len(await made.told(world, operation_id)) == 1
    runs = await made.runs_of(world, operation_id)
    assert len({run.canceled_by for run in runs.values()}) == 1


async def test_a_thousand_runs_that_have_not_begun_end_in_a_few_statements(world: World) -> None:
    operation_id = await made.created_nodes(world, 1_000)
    with statements_of(world.database) as statements:
        assert len(await made.cancel(world, operation_id)) == 1_000
    assert len(statements) < 30, statements
    still_open = (Run.operation_id == operation_id, Run.state.not_in(FINAL_RUN_STATES))
    assert await world.count(Run, *still_open) == 0
    failed = (Node.tenant_id == world.tenant, Node.status == NodeStatus.FAILED)
    assert await world.count(Node, *failed) == 1_000


async def test_another_tenants_operation_is_not_there(world: World) -> None:
    with pytest.raises(Refusal) as refused:
        await made.cancel(world, uuid.uuid4())
    assert refused.value.code is RefusalCode.NOT_FOUND


async def test_what_begins_a_step_sees_a_cancel_that_came_after_it_had_read_the_run(world: World) -> None:
    run, _ = await created(world)
    await claimed(world, run.id)
    async with world.database.begin() as session:
        known = (await session.execute(select(Run).where(Run.id == run.id))).scalar_one()
        await made.cancel(world, run.operation_id)
        with pytest.raises(RunCanceledError):
            await share_live_run(session, known)


async def test_a_cancel_waits_for_a_step_that_is_just_being_begun(world: World) -> None:
    run, _ = await created(world)
    await claimed(world, run.id)
    async with world.database.begin() as session:
        known = (await session.execute(select(Run).where(Run.id == run.id))).scalar_one()
        await share_live_run(session, known)
        cancelling = asyncio.ensure_future(made.cancel(world, run.operation_id))
        async with asyncio.timeout(10):
            while not await world.fetch(_WAITING):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert not cancelling.done()
    await cancelling
    assert (await made.runs_of(world, run.operation_id))[run.name].state == RunState.CANCELING


async def test_nothing_begins_for_a_run_that_has_ended(world: World) -> None:
    run, _ = await created(world)
    await made.end(world, run, RunState.FAILED, made.card())
    async with world.database.begin() as session:
        known = await session.get_one(Run, run.id)
        with pytest.raises(SupersededError, match="has already ended: failed"):
            await share_live_run(session, known)
