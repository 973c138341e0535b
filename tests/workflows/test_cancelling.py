"""Cancelling, on the time-skipping server: what must be proven, recorded, and waited for."""

import asyncio

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowFailureError, WorkflowHistory
from temporalio.exceptions import CancelledError

from domain.failures import FailureClass
from domain.states import RunState
from profiles.kinds.base import OnFailure
from tests.workflows.conftest import Lab, Started
from tests.workflows.fakes import World, fails, step

CANCEL_ASKED = EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED


async def cancelled(handle: Started) -> None:
    """Waits for the operation's end, which must be a cancelled one."""
    with pytest.raises(WorkflowFailureError) as failed:
        await handle.result()
    assert isinstance(failed.value.cause, CancelledError)


async def test_the_run_ends_only_after_the_proof_that_its_step_is_gone(lab: Lab) -> None:
    world = World(block={"step gpu-1 0.1": asyncio.Event()})
    async with lab.worker(world):
        handle = await lab.start(world)
        await world.reached("step gpu-1 0.1")
        await handle.cancel()
        await cancelled(handle)
    assert list(dict.fromkeys(world.order))[-3:] == ["confirm gpu-1", "end gpu-1", "end_operation"]


async def test_an_unreachable_machine_is_asked_again_until_it_answers(lab: Lab) -> None:
    world = World(
        block={"step gpu-1 0.1": asyncio.Event()},
        trouble={
            "confirm gpu-1": lambda calls: fails(FailureClass.CONNECT, retried=True) if calls < 40 else None
        },
    )
    async with lab.worker(world):
        handle = await lab.start(world)
        await world.reached("step gpu-1 0.1")
        await handle.cancel()
        await cancelled(handle)
    assert world.calls["confirm gpu-1"] == 40
    assert world.ends["gpu-1"] is RunState.CANCELED


async def test_one_unconfirmed_node_keeps_the_operation_open_and_no_other(lab: Lab) -> None:
    names = ["gpu-1", "gpu-2"]
    world = World(
        names=names,
        block={f"step {name} 0.1": asyncio.Event() for name in names} | {"confirm gpu-2": asyncio.Event()},
    )
    async with lab.worker(world):
        handle = await lab.start(world)
        await world.reached("step gpu-1 0.1", "step gpu-2 0.1")
        await handle.cancel()
        await world.reached("end gpu-1", "confirm gpu-2")
        assert world.calls["end_operation"] == 0
        world.block["confirm gpu-2"].set()
        await cancelled(handle)
    assert world.ends == dict.fromkeys(names, RunState.CANCELED)
    assert world.order[-1] == "end_operation"


async def test_a_run_that_the_records_call_cancelled_is_proven_too(lab: Lab) -> None:
    """The activity may learn of the cancel before the workflow does."""
    world = World(trouble={"step gpu-1 1.1": lambda _: fails(FailureClass.CANCELLED)})
    assert (await lab.run(world)).state is RunState.CANCELED
    assert list(dict.fromkeys(world.order))[-3:] == ["confirm gpu-1", "end gpu-1", "end_operation"]


async def test_a_run_that_was_cancelled_before_it_had_its_machine_has_nothing_to_prove(lab: Lab) -> None:
    world = World(trouble={"claim gpu-1": lambda _: fails(FailureClass.CANCELLED)})
    assert (await lab.run(world)).state is RunState.CANCELED
    assert world.calls["confirm gpu-1"] == 0


async def asked_to_cancel(lab: Lab, world: World) -> None:
    """Cancels the node's workflow, and waits until its activity has been asked to end."""
    node = lab.environment.client.get_workflow_handle(f"node/{world.subjects['gpu-1']}")
    await node.cancel()
    while CANCEL_ASKED not in {event.event_type for event in (await node.fetch_history()).events}:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


def taken_up(history: WorkflowHistory) -> bool:
    """Whether the workflow has seen the cancel that it was asked for."""
    kinds = [event.event_type for event in history.events]
    asked = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED
    return asked in kinds and EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED in kinds[kinds.index(asked) :]


async def test_what_an_activity_meets_after_the_cancel_does_not_spare_the_proof(lab: Lab) -> None:
    """Temporal tries no activity again whose cancel was asked for: a worker's restart is final then."""
    world = World(
        steps=[step(0, "one", attempts=5)],
        deaf={"step gpu-1 0.1": asyncio.Event()},
        trouble={"step gpu-1 0.1": lambda _: fails(FailureClass.INTERNAL, "the worker is stopping")},
    )
    async with lab.worker(world):
        handle = await lab.start(world)
        await world.reached("step gpu-1 0.1")
        await asked_to_cancel(lab, world)
        world.deaf["step gpu-1 0.1"].set()
        assert (await handle.result()).state is RunState.CANCELED
    assert world.calls["confirm gpu-1"] == 1
    assert world.calls["step gpu-1 0.2"] == 0


async def test_a_cancel_that_arrives_during_the_proof_does_not_cut_it_short(lab: Lab) -> None:
    world = World(
        block={"confirm gpu-1": asyncio.Event()},
        trouble={"step gpu-1 0.1": lambda _: fails(FailureClass.CANCELLED)},
    )
    async with lab.worker(world):
        handle = await lab.start(world)
        await world.reached("confirm gpu-1")
        node = lab.environment.client.get_workflow_handle(f"node/{world.subjects['gpu-1']}")
        await node.cancel()
        while not taken_up(await node.fetch_history()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert "gpu-1" not in world.ends
        world.block["confirm gpu-1"].set()
        assert (await handle.result()).state is RunState.CANCELED
    assert world.order.index("end gpu-1") > world.order.index("confirm gpu-1")


async def test_a_cancel_that_a_short_step_did_not_hear_of_is_not_lost(lab: Lab) -> None:
    world = World(deaf={"step gpu-1 0.1": asyncio.Event()})
    async with lab.worker(world):
        handle = await lab.start(world)
        await world.reached("step gpu-1 0.1")
        await asked_to_cancel(lab, world)
        world.deaf["step gpu-1 0.1"].set()
        assert (await handle.result()).state is RunState.CANCELED
    assert world.calls["step gpu-1 1.1"] == 0
    assert world.ends["gpu-1"] is RunState.CANCELED


@pytest.mark.parametrize("on_failure", [OnFailure.FAIL, OnFailure.HOLD])
async def test_a_step_that_fails_by_itself_while_it_is_cancelled_is_neither_retried_nor_held(
    lab: Lab, on_failure: OnFailure
) -> None:
    attempts = 3 if on_failure is OnFailure.FAIL else 1
    world = World(
        steps=[step(0, "one", attempts=attempts, backoff_seconds=3600, on_failure=on_failure)],
        deaf={"step gpu-1 0.1": asyncio.Event()},
        trouble={"step gpu-1 0.1": lambda _: fails(FailureClass.EXIT)},
    )
    async with lab.worker(world):
        handle = await lab.start(world)
        await world.reached("step gpu-1 0.1")
        await asked_to_cancel(lab, world)
        world.deaf["step gpu-1 0.1"].set()
        assert (await handle.result()).state is RunState.CANCELED
        node = lab.environment.client.get_workflow_handle(f"node/{world.subjects['gpu-1']}")
        kinds = {event.event_type for event in (await node.fetch_history()).events}
    assert EventType.EVENT_TYPE_TIMER_STARTED not in kinds
    assert not world.held
    assert world.ends["gpu-1"] is RunState.CANCELED


async def test_a_machine_that_is_cancelled_while_it_joins_ends_as_cancelled(lab: Lab) -> None:
    world = World(names=["local-1"], kind="machine", action="join", block={"verify_machine": asyncio.Event()})
    async with lab.worker(world):
        handle = await lab.start(world)
        await world.reached("verify_machine")
        await handle.cancel()
        await cancelled(handle)
    assert world.ends["local-1"] is RunState.CANCELED
    assert list(dict.fromkeys(world.order))[-3:] == ["confirm local-1", "end local-1", "end_operation"]


async def test_a_machine_whose_records_say_that_it_was_cancelled_ends_as_cancelled(lab: Lab) -> None:
    world = World(
        names=["local-1"],
        kind="machine",
        action="clean",
        trouble={"verify_machine": lambda _: fails(FailureClass.CANCELLED)},
    )
    assert (await lab.run(world)).state is RunState.CANCELED
    assert world.ends["local-1"] is RunState.CANCELED
