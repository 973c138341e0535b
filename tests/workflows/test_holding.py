"""`onFailure: hold` on the time-skipping server: what a person may decide, and what is kept meanwhile."""

import pytest
from temporalio.client import WorkflowFailureError

from activities.signatures import HoldRef
from domain.failures import FailureClass
from domain.states import RunState
from profiles.kinds.base import OnFailure
from tests.workflows.conftest import Lab
from tests.workflows.fakes import World, fails, step
from workflows.node import NodeWorkflow

HELD = [step(0, "one"), step(1, "two", on_failure=OnFailure.HOLD), step(2, "three")]


def failing(times: int, failure_class: FailureClass = FailureClass.EXIT) -> World:
    """A World whose second step fails so many times."""
    trouble = {f"step gpu-1 1.{attempt}": lambda _: fails(failure_class) for attempt in range(1, times + 1)}
    return World(steps=HELD, trouble=trouble)  # type: ignore[arg-type]


async def decide(lab: Lab, world: World, verdict: str, number: int) -> None:
    """Signals as the dispatcher does."""
    node = lab.environment.client.get_workflow_handle(f"node/{world.subjects['gpu-1']}")
    signal = NodeWorkflow.resume if verdict == "resume" else NodeWorkflow.abort
    await node.signal(signal, HoldRef(run_id=world.run_ids["gpu-1"], number=number))


def steps(world: World) -> list[str]:
    return [call.removeprefix("step gpu-1 ") for call in world.order if call.startswith("step")]


async def test_a_resumed_run_tries_the_failed_step_again_and_goes_on(lab: Lab) -> None:
    world = failing(2)
    async with lab.worker(world):
        handle = await lab.start(world)
        for number in (1, 2):
            await world.reached(f"hold gpu-1 {number}")
            await decide(lab, world, "resume", number)
        assert (await handle.result()).state is RunState.SUCCEEDED
    assert steps(world) == ["0.1", "1.1", "1.2", "1.3", "2.1"]


async def test_an_aborted_run_fails_with_the_steps_own_card(lab: Lab) -> None:
    world = failing(1)
    async with lab.worker(world):
        handle = await lab.start(world)
        await world.reached("hold gpu-1 1")
        await decide(lab, world, "abort", 1)
        assert (await handle.result()).state is RunState.FAILED
    assert steps(world) == ["0.1", "1.1"]
    assert world.cards["gpu-1"].startswith("exit:")


async def test_a_late_decision_about_an_earlier_hold_is_not_taken_for_a_later_one(lab: Lab) -> None:
    world = failing(2)
    async with lab.worker(world):
        handle = await lab.start(world)
        await world.reached("hold gpu-1 1")
        await decide(lab, world, "resume", 1)
        await world.reached("hold gpu-1 2")
        await decide(lab, world, "abort", 1)
        await decide(lab, world, "resume", 2)
        assert (await handle.result()).state is RunState.SUCCEEDED


async def test_a_held_run_can_be_cancelled(lab: Lab) -> None:
    world = failing(1)
    async with lab.worker(world):
        handle = await lab.start(world)
        await world.reached("hold gpu-1 1")
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    assert world.ends["gpu-1"] is RunState.CANCELED


async def test_a_machine_that_was_lost_is_held_as_well(lab: Lab) -> None:
    world = failing(1, FailureClass.LOST_MACHINE)
    async with lab.worker(world):
        handle = await lab.start(world)
        await world.reached("hold gpu-1 1")
        await decide(lab, world, "resume", 1)
        assert (await handle.result()).state is RunState.SUCCEEDED


async def test_a_superseded_run_is_not_held(lab: Lab) -> None:
    world = failing(1, FailureClass.SUPERSEDED)
    assert (await lab.run(world)).state is RunState.SUPERSEDED
    assert not world.held


async def test_the_steps_own_retries_come_before_the_hold(lab: Lab) -> None:
    world = World(
        steps=[step(0, "one", attempts=2, on_failure=OnFailure.HOLD)],
        trouble={
            "step gpu-1 0.1": lambda _: fails(FailureClass.EXIT),
            "step gpu-1 0.2": lambda _: fails(FailureClass.EXIT),
        },
    )
    async with lab.worker(world):
        handle = await lab.start(world)
        await world.reached("hold gpu-1 1")
        assert steps(world) == ["0.1", "0.2"]
        await decide(lab, world, "resume", 1)
        assert (await handle.result()).state is RunState.SUCCEEDED
    assert steps(world) == ["0.1", "0.2", "0.3"]


async def test_a_held_node_keeps_no_other_waiting(lab: Lab) -> None:
    world = World(
        names=["gpu-1", "gpu-2"],
        steps=HELD,
        trouble={"step gpu-1 1.1": lambda _: fails(FailureClass.EXIT)},
    )
    async with lab.worker(world):
        handle = await lab.start(world)
        await world.reached("hold gpu-1 1", "finish gpu-2")
        await decide(lab, world, "abort", 1)
        assert (await handle.result()).state is RunState.PARTIALLY_SUCCEEDED
