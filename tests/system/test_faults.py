"""Every process of the control plane dies in the middle of a create; the same nodes become Ready.

A counter on each machine shows that each step ran exactly once.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.fixtures.dev_stack import Cluster, DevStack, eventually
from tests.system.conftest import command, counted
from workflows.client import connect

pytestmark = pytest.mark.system
Make = Callable[..., Cluster]


def slow_steps() -> list[dict[str, Any]]:
    """Steps long enough for something to die in the middle of the second."""
    return [counted("before"), counted("during", "sleep 4; echo done"), counted("after")]


def wait_for_step(cluster: Cluster, operation_id: str, name: str) -> None:
    """Until every node of the operation is running the step."""

    def running() -> bool:
        nodes = cluster.nodes()
        at = [s for s in cluster.steps_of(operation_id) if s["step"] == name and s["state"] == "running"]
        return bool(nodes) and len(at) == len(nodes)

    eventually(f"step {name} is running everywhere", running)


def assert_each_step_ran_once(stack: DevStack, cluster: Cluster, count: int) -> None:
    nodes = cluster.nodes()
    assert [node["Status"] for node in nodes] == ["Ready"] * count
    for node in nodes:
        for name in ("before", "during", "after"):
            assert stack.machine_ssh(node["PrivateIp"], f"cat /var/count.{name}").split() == ["ran"]


@pytest.mark.parametrize("role", ["worker", "temporal", "postgres", "api"])
def test_a_process_killed_in_the_middle_of_a_create_costs_nothing(
    stack: DevStack, cluster: Make, role: str
) -> None:
    demo = cluster(*slow_steps())
    operation_id = demo.create(3).json()["operationId"]
    wait_for_step(demo, operation_id, "during")
    killed = stack.kill(role)
    operation = demo.ended(operation_id)
    assert operation["state"] == "succeeded"
    assert_each_step_ran_once(stack, demo, 3)
    assert stack.pid(role) != killed
    logs = [step for step in demo.steps_of(operation_id) if step["step"] == "during"]
    for step in logs:
        said = stack.fleet("operations/logs", stepRunId=step["stepRunId"], stream="stdout", offset=0)
        assert said["data"] == "done\n"


def test_with_temporal_stopped_a_create_still_answers_202_and_runs_when_it_is_back(
    stack: DevStack, cluster: Make
) -> None:
    demo = cluster(counted("before"), counted("during"), counted("after"))
    pid = stack.kill("temporal", signal.SIGSTOP)
    try:
        answer = demo.create(2)
        assert answer.status_code == 202
        assert {node["Status"] for node in demo.nodes()} == {"Acquiring"}
    finally:
        os.kill(pid, signal.SIGCONT)
    assert demo.ended(answer.json()["operationId"])["state"] == "succeeded"
    assert_each_step_ran_once(stack, demo, 2)


def step_tries(stack: DevStack, node_id: str) -> int:
    """How often Temporal has handed out the activity that the node's workflow waits for."""

    async def ask() -> int:
        client = await connect(stack.ready["temporal"], "default")
        described = await client.get_workflow_handle(f"node/{node_id}").describe()
        return max((pending.attempt for pending in described.raw_description.pending_activities), default=0)

    return asyncio.run(ask())


def test_a_late_worker_that_was_frozen_repeats_nothing(stack: DevStack, cluster: Make) -> None:
    demo = cluster(*slow_steps())
    operation_id = demo.create(2).json()["operationId"]
    wait_for_step(demo, operation_id, "during")
    (node, _) = demo.nodes()
    pid = stack.kill("worker", signal.SIGSTOP)
    # Temporal has given the activity up and would hand it to another worker; the step ends meanwhile.
    eventually("the step is tried again", lambda: step_tries(stack, node["NodeId"]) > 1)
    os.kill(pid, signal.SIGCONT)
    assert demo.ended(operation_id)["state"] == "succeeded"
    assert_each_step_ran_once(stack, demo, 2)


def test_a_terminate_that_meets_a_create_ends_its_step_and_takes_over(stack: DevStack, cluster: Make) -> None:
    demo = cluster(command("long", "echo $$ > /var/long.pid; exec sleep 3077"))
    creating = demo.create(1).json()["operationId"]
    wait_for_step(demo, creating, "long")
    (node,) = demo.nodes()
    terminating = demo.terminate("gpu-1").json()["operationId"]
    (node,) = demo.nodes()
    assert node["TargetState"] == "Terminated"
    assert demo.ended(terminating)["state"] == "succeeded"
    assert demo.ended(creating)["state"] == "superseded"
    assert demo.nodes() == []
    (step,) = [step for step in demo.steps_of(creating) if step["step"] == "long"]
    assert step["state"] == "canceled"


def terminate_workflow(stack: DevStack, workflow_id: str) -> None:
    """What the Web UI's Terminate button does: the workflow ends at once and can record nothing."""

    async def terminate() -> None:
        client = await connect(stack.ready["temporal"], "default")
        await client.get_workflow_handle(workflow_id).terminate("by hand")

    asyncio.run(terminate())


@pytest.mark.parametrize("level", ["operation", "batch", "node"])
def test_a_workflow_terminated_by_hand_ends_in_a_failed_node_with_a_card(
    stack: DevStack, cluster: Make, level: str
) -> None:
    demo = cluster(command("long", "exec sleep 3077"))
    operation_id = demo.create(1).json()["operationId"]
    wait_for_step(demo, operation_id, "long")
    (node,) = demo.nodes()
    ids = {
        "operation": f"operation/{operation_id}",
        "batch": f"batch/{operation_id}/0",
        "node": f"node/{node['NodeId']}",
    }
    terminate_workflow(stack, ids[level])
    operation = demo.ended(operation_id)
    assert operation["state"] in ("failed", "canceled")
    (node,) = demo.nodes()
    assert node["Status"] == "Failed"
    assert node["StatusMessage"]


def test_an_operation_whose_workflow_temporal_lost_ends_in_a_failed_node_with_a_card(
    stack: DevStack, cluster: Make
) -> None:
    demo = cluster(command("long", "exec sleep 3077"))
    operation_id = demo.create(1).json()["operationId"]
    wait_for_step(demo, operation_id, "long")
    (node,) = demo.nodes()

    async def forget() -> None:
        client = await connect(stack.ready["temporal"], "default")
        for workflow_id in (
            f"operation/{operation_id}",
            f"batch/{operation_id}/0",
            f"node/{node['NodeId']}",
        ):
            await delete_workflow(client, workflow_id)

    asyncio.run(forget())
    operation = demo.ended(operation_id)
    assert operation["state"] == "failed"
    (node,) = demo.nodes()
    assert node["Status"] == "Failed"
    assert "no longer knows it" in node["StatusMessage"]


async def delete_workflow(client: Any, workflow_id: str) -> None:
    """Removes a workflow's history, as a lost database would."""
    from temporalio.api.common.v1 import WorkflowExecution
    from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest

    described = await client.get_workflow_handle(workflow_id).describe()
    await client.workflow_service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=workflow_id, run_id=described.run_id),
        )
    )
