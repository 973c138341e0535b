"""Held runs: they wait for a person, are decided about once a hold, and an operation settles after them."""

import asyncio
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from database.operations import OPERATION_DEADLINE
from database.refusals import Refusal, RefusalCode
from database.run_locks import RunCanceledError, SupersededError
from database.tables import Event, Operation, Run
from domain.holds import Verdict
from domain.states import NodeStatus, RunState
from tests.database import decisions as made
from tests.database.scenes import claimed, terminating
from tests.database.world import World


async def running(world: World, count: int) -> tuple[uuid.UUID, dict[str, Run]]:
    """An operation that has begun, and its runs, all at work."""
    operation_id = await made.created_nodes(world, count)
    await made.begin(world, operation_id)
    for run in (await made.runs_of(world, operation_id)).values():
        await claimed(world, run.id)
    return operation_id, await made.runs_of(world, operation_id)


async def test_a_held_run_says_why_and_its_node_waits_without_a_deadline(world: World) -> None:
    operation_id, runs = await running(world, 2)
    await made.hold(world, runs["gpu-1"])
    held = (await made.runs_of(world, operation_id))["gpu-1"]
    assert (held.state, held.holds, held.ended_at) == (RunState.HELD, 1, None)
    assert held.card is not None
    assert held.card["message"] == "exited with status 3"
    node = await made.node_of(world, held)
    assert (node.status, node.status_deadline) == (NodeStatus.PREPARING, None)
    assert "exited with status 3" in node.message
    assert (await made.operation(world, operation_id)).state == RunState.HELD
    assert await world.count(Event, Event.type == "node.create.held", Event.subject == f"node/{node.id}") == 1


async def test_a_repeated_hold_of_one_number_changes_nothing(world: World) -> None:
    operation_id, runs = await running(world, 1)
    await made.hold(world, runs["gpu-1"])
    await made.verdict(world, operation_id, Verdict.RESUME)
    await made.hold(world, runs["gpu-1"], 1)
    assert await made.states_of(world, operation_id) == {"gpu-1": RunState.RUNNING}
    await made.hold(world, runs["gpu-1"], 2)
    again = (await made.runs_of(world, operation_id))["gpu-1"]
    assert (again.state, again.holds) == (RunState.HELD, 2)


@pytest.mark.parametrize("verdict", Verdict)
async def test_a_decision_is_about_one_hold_and_each_is_told_once(world: World, verdict: Verdict) -> None:
    operation_id, runs = await running(world, 1)
    for number in (1, 2):
        await made.hold(world, runs["gpu-1"], number)
        assert await made.verdict(world, operation_id, verdict) == ["gpu-1"]
    told = [(verdict, runs["gpu-1"].id, number) for number in (1, 2)]
    assert await made.told(world, operation_id) == told
    assert (await made.operation(world, operation_id)).state == RunState.RUNNING


async def test_a_resumed_run_is_not_shown_with_its_old_failure_and_its_node_has_its_time_again(
    world: World,
) -> None:
    operation_id, runs = await running(world, 1)
    await made.hold(world, runs["gpu-1"])
    await made.verdict(world, operation_id, Verdict.RESUME)
    run = (await made.runs_of(world, operation_id))["gpu-1"]
    assert (run.state, run.card) == (RunState.RUNNING, None)
    node = await made.node_of(world, run)
    assert node.message == f"resumed by {made.ACTOR}"
    assert node.status_deadline is not None


async def test_the_operation_is_held_until_the_last_of_its_held_runs_was_decided(world: World) -> None:
    operation_id, runs = await running(world, 3)
    await made.hold(world, runs["gpu-1"])
    await made.hold(world, runs["gpu-2"])
    assert await made.verdict(world, operation_id, Verdict.RESUME, ["gpu-2"]) == ["gpu-2"]
    assert (await made.operation(world, operation_id)).state == RunState.HELD
    assert await made.verdict(world, operation_id, Verdict.ABORT) == ["gpu-1"]
    assert (await made.operation(world, operation_id)).state == RunState.RUNNING
    assert [row[0] for row in await made.told(world, operation_id)] == [Verdict.RESUME, Verdict.ABORT]


async def test_a_second_decision_is_refused_with_the_state_that_there_is(world: World) -> None:
    operation_id, runs = await running(world, 1)
    await made.hold(world, runs["gpu-1"])
    await made.verdict(world, operation_id, Verdict.ABORT)
    for names, said in ((None, "no run of it is held"), (["gpu-1"], "not held: gpu-1 is running")):
        with pytest.raises(Refusal, match=said) as refused:
            await made.verdict(world, operation_id, Verdict.RESUME, names)
        assert refused.value.code is RefusalCode.INVALID_STATE
    assert len(await made.told(world, operation_id)) == 1


async def test_of_decisions_at_once_one_stands(world: World) -> None:
    operation_id, runs = await running(world, 1)
    await made.hold(world, runs["gpu-1"])
    results = await asyncio.gather(
        *(made.verdict(world, operation_id, verdict) for verdict in [*Verdict, *Verdict]),
        return_exceptions=True,
    )
    assert sum(isinstance(result, Refusal) for result in results) == 3
    assert len(await made.told(world, operation_id)) == 1


async def test_one_name_that_is_not_held_refuses_all(world: World) -> None:
    operation_id, runs = await running(world, 2)
    await made.hold(world, runs["gpu-1"])
    with pytest.raises(Refusal, match="not held: gpu-2 is running"):
        await made.verdict(world, operation_id, Verdict.RESUME, ["gpu-1", "gpu-2"])
    with pytest.raises(Refusal, match="no run of 'nope'; there are: gpu-1, gpu-2") as refused:
        await made.verdict(world, operation_id, Verdict.RESUME, ["gpu-1", "nope"])
    assert refused.value.code is RefusalCode.INVALID_INPUT
    assert (await made.states_of(world, operation_id))["gpu-1"] == RunState.HELD
    assert await made.told(world, operation_id) == []


async def test_a_held_run_can_be_cancelled_and_then_not_be_resumed(world: World) -> None:
    operation_id, runs = await running(world, 2)
    await made.hold(world, runs["gpu-1"])
    assert await made.cancel(world, operation_id, ["gpu-1"]) == ["gpu-1"]
    assert (await made.states_of(world, operation_id))["gpu-1"] == RunState.CANCELING
    assert (await made.operation(world, operation_id)).state == RunState.RUNNING
    assert await made.told(world, operation_id) == [(RunState.CANCELED, runs["gpu-1"].id, None)]
    with pytest.raises(Refusal, match="not held: gpu-1 is canceling"):
        await made.verdict(world, operation_id, Verdict.RESUME, ["gpu-1"])
    with pytest.raises(RunCanceledError, match=f"cancelled by {made.ACTOR}"):
        await made.hold(world, runs["gpu-1"], 2)


async def test_a_run_that_has_ended_is_not_held(world: World) -> None:
    operation_id, runs = await running(world, 2)
    await made.end(world, runs["gpu-1"], RunState.FAILED, made.card())
    with pytest.raises(SupersededError):
        await made.hold(world, runs["gpu-1"])
    await terminating(world, await made.node_of(world, runs["gpu-2"]))
    with pytest.raises(SupersededError, match="moved on"):
        await made.hold(world, runs["gpu-2"])
    assert (await made.operation(world, operation_id)).state == RunState.RUNNING


async def test_a_decision_about_a_node_that_is_being_terminated_leaves_its_message_alone(
    world: World,
) -> None:
    operation_id, runs = await running(world, 1)
    await made.hold(world, runs["gpu-1"])
    run_id = await terminating(world, await made.node_of(world, runs["gpu-1"]))
    await made.verdict(world, operation_id, Verdict.RESUME)
    node = await made.node_of(world, runs["gpu-1"])
    assert (node.status, node.message) == (NodeStatus.TERMINATING, "terminating, as asked for by tester")
    assert (await world.one(select(Run).where(Run.id == run_id))).state == RunState.PENDING


@pytest.mark.parametrize("verdict", Verdict)
async def test_the_time_for_which_it_was_held_does_not_count(world: World, verdict: Verdict) -> None:
    operation_id, runs = await running(world, 1)
    await made.hold(world, runs["gpu-1"])
    late = datetime.now(UTC) - timedelta(days=1)
    await world.set(Operation, Operation.id == operation_id, deadline=late)
    await made.verdict(world, operation_id, verdict)
    left = (await made.operation(world, operation_id)).deadline - datetime.now(UTC)
    assert left > OPERATION_DEADLINE - timedelta(minutes=5)


async def test_an_operation_is_no_longer_held_when_its_held_node_was_terminated(world: World) -> None:
    operation_id, runs = await running(world, 2)
    await made.hold(world, runs["gpu-1"])
    await terminating(world, await made.node_of(world, runs["gpu-1"]))
    await made.end(world, runs["gpu-1"], RunState.CANCELED, made.card())
    assert await made.states_of(world, operation_id) == {
        "gpu-1": RunState.SUPERSEDED,
        "gpu-2": RunState.RUNNING,
    }
    assert (await made.operation(world, operation_id)).state == RunState.RUNNING


async def test_a_held_run_that_ends_leaves_the_operation_held_for_the_other_one(world: World) -> None:
    operation_id, runs = await running(world, 2)
    for run in runs.values():
        await made.hold(world, run)
    await made.end(world, runs["gpu-1"], RunState.FAILED, made.card())
    assert (await made.operation(world, operation_id)).state == RunState.HELD


async def test_a_cancel_and_the_end_of_a_held_run_do_not_wait_for_each_other_for_ever(world: World) -> None:
    for _ in range(5):
        operation_id, runs = await running(world, 3)
        for run in runs.values():
            await made.hold(world, run)
        await asyncio.gather(
            made.cancel(world, operation_id),
            *(made.end(world, run, RunState.FAILED, made.card()) for run in runs.values()),
        )
        states = set((await made.states_of(world, operation_id)).values())
        assert states == {RunState.FAILED}
        assert await made.close(world, operation_id) is RunState.FAILED
