"""Cancels that arrive at awkward moments: none is lost, and none loses an end."""

import asyncio
from collections.abc import Callable

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle
from temporalio.worker import Worker

from domain.failures import FailureClass
from domain.states import RunState
from profiles.kinds.base import OnFailure
from tests.workflows.conftest import Lab
from tests.workflows.fakes import Fakes, World, fails, step
from workflows.client import CODE_ERRORS, workflow_runner
from workflows.registry import WORKFLOWS

DONE = EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
ASKED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED
SEEN = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED


async def kinds(handle: WorkflowHandle[object, object]) -> list[int]:
    """What has happened to a workflow, in order."""
    return [event.event_type for event in (await handle.fetch_history()).events]


async def events(handle: WorkflowHandle[object, object], kind: int, count: int) -> None:
    """Waits until so many of a kind have happened."""
    while (await kinds(handle)).count(kind) < count:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def seen_cancelled(handle: WorkflowHandle[object, object]) -> None:
    """Waits until the workflow has been told of its cancel."""
    while True:
        happened = await kinds(handle)
        if ASKED in happened and SEEN in happened[happened.index(ASKED) :]:
            return
        await asyncio.sleep(0.05)


async def test_a_cancel_that_arrives_together_with_the_record_of_the_hold_ends_the_run(lab: Lab) -> None:
    """With no worker for workflows in between, the workflow is told of both at once."""
    world = World(
        steps=[step(0, "one", on_failure=OnFailure.HOLD)],
        deaf={"hold gpu-1 1": asyncio.Event()},
        trouble={"step gpu-1 0.1": lambda _: fails(FailureClass.EXIT)},
    )
    client = lab.environment.client

    def workflows() -> Worker:
        return Worker(
            client,
            task_queue=lab.task_queue,
            workflows=WORKFLOWS,
            workflow_runner=workflow_runner(),
            workflow_failure_exception_types=CODE_ERRORS,
            max_cached_workflows=0,
        )

    served = Fakes(world).registered()
    async with Worker(client, task_queue=lab.task_queue, activities=served), lab.reacher(world):
        async with workflows():
            handle = await lab.start(world)
            await world.reached("hold gpu-1 1")
        node: WorkflowHandle[object, object] = client.get_workflow_handle(f"node/{world.subjects['gpu-1']}")
        done = (await kinds(node)).count(DONE)
        world.deaf["hold gpu-1 1"].set()
        await events(node, DONE, done + 1)
        await node.cancel()
        async with workflows():
            assert (await handle.result()).state is RunState.CANCELED
    assert world.calls["confirm gpu-1"] == 1


@pytest.mark.parametrize("kind", ["node", "machine"])
async def test_a_cancel_that_arrives_while_a_failure_is_recorded_does_not_lose_it(
    lab: Lab, kind: str
) -> None:
    failing: dict[str, Callable[[int], Exception | None]] = {
        "step gpu-1 0.1": lambda _: fails(FailureClass.EXIT, "exited with status 1"),
        "verify_machine": lambda _: fails(FailureClass.PRIVILEGE),
    }
    world = World(
        kind=kind,
        action="create" if kind == "node" else "join",
        trouble=failing,
        block={"end gpu-1": asyncio.Event()},
    )
    async with lab.worker(world):
        handle = await lab.start(world)
        await world.reached("end gpu-1")
        run: WorkflowHandle[object, object] = lab.environment.client.get_workflow_handle(
            f"{kind}/{world.subjects['gpu-1']}"
        )
        await run.cancel()
        await seen_cancelled(run)
        world.block["end gpu-1"].set()
        assert (await handle.result()).state is RunState.FAILED
        assert (await run.describe()).status is WorkflowExecutionStatus.FAILED
    assert world.ends["gpu-1"] is RunState.FAILED
