"""Cancelling on real machines: what was asked to end has ended, and the machine itself says so."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.fixtures.dev_stack import Cluster, DevStack, eventually
from tests.system.conftest import command, counted

pytestmark = pytest.mark.system
Make = Callable[..., Cluster]

# What people write: it ignores TERM, and leaves children that ignore it, too, have left its session and its
# process group, lost their parent, and carry nothing of its environment.
STUBBORN = """
trap '' TERM
setsid env -i /usr/bin/sleep 4711 &
(setsid sh -c 'trap "" TERM; while :; do sleep 4711; done' & )
trap 'echo asked to end' TERM
echo begun
while :; do sleep 4711 || :; done
"""


def left_of(stack: DevStack, address: str, marker: str) -> list[str]:
    """Command lines on a machine that hold the marker."""
    pattern = f"sleep [{marker[0]}]{marker[1:]}"  # which the line that looks for it does not match
    found = stack.machine_ssh(
        address, f"cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -o '{pattern}' || true"
    )
    return found.split("\n")[:-1]


def address_of(cluster: Cluster, name: str) -> str:
    """Where the machine of a node is reached, before the node itself says so."""
    (node,) = [node for node in cluster.nodes() if node["Name"] == name]
    return cluster.stack.address_of(node["InstanceId"])


def assert_all_canceled(cluster: Cluster, operation: dict[str, Any], count: int) -> None:
    assert operation["state"] == "canceled"
    assert [run["state"] for run in operation["progress"]] == ["canceled"] * count
    for node in cluster.nodes():
        assert (node["Status"], node["State"], node["TargetState"]) == ("Failed", "Error", "Started")
        assert node["StatusMessage"].startswith("cancelled:")


def test_a_cancel_leaves_no_process_of_a_step_that_will_not_end(stack: DevStack, cluster: Make) -> None:
    demo = cluster(counted("before"), command("stubborn", STUBBORN), counted("after"))
    operation_id = demo.create(1).json()["operationId"]
    demo.running(operation_id, "stubborn", 1)
    address = address_of(demo, "gpu-1")
    eventually("the children are there", lambda: len(left_of(stack, address, "4711")) >= 3)
    answer = demo.cancel(operation_id)
    assert answer.status_code == 202
    assert answer.json()["state"] in ("canceling", "canceled")
    operation = demo.ended(operation_id)
    assert left_of(stack, address, "4711") == []
    assert_all_canceled(demo, operation, 1)
    assert operation["canceledBy"]
    steps = {step["step"]: step for step in demo.steps_of(operation_id)}
    assert (steps["before"]["state"], steps["stubborn"]["state"]) == ("succeeded", "canceled")
    assert "after" not in steps
    log = stack.fleet("operations/logs", stepRunId=steps["stubborn"]["stepRunId"], stream="stdout")
    assert log["data"] == "begun\nasked to end\n", "what a step says while it is ended is kept as well"


def test_a_cancel_before_the_start_means_that_nothing_ever_runs(stack: DevStack, cluster: Make) -> None:
    demo = cluster(counted("never"))
    pid = stack.kill("temporal", signal.SIGSTOP)
    try:
        operation_id = demo.create(2).json()["operationId"]
        assert demo.cancel(operation_id).status_code == 202
        assert demo.cancel(operation_id).status_code == 202, "twice is as good as once"
        assert [node["Status"] for node in demo.nodes()] == ["Failed"] * 2
    finally:
        os.kill(pid, signal.SIGCONT)
    assert_all_canceled(demo, demo.ended(operation_id), 2)
    assert demo.steps_of(operation_id) == []
    assert {run["startTime"] for run in demo.operation(operation_id)["progress"]} == {None}


def test_of_four_nodes_one_is_cancelled_and_the_others_go_on(stack: DevStack, cluster: Make) -> None:
    wait = "while [ ! -e /var/go ]; do sleep 0.1; done"
    demo = cluster(command("wait", wait), counted("after"))
    operation_id = demo.create(4).json()["operationId"]
    demo.running(operation_id, "wait", 4)
    assert demo.cancel(operation_id, "gpu-2").status_code == 202

    def is_canceled() -> bool:
        states = {run["name"]: run["state"] for run in demo.operation(operation_id)["progress"]}
        return states == {"gpu-1": "running", "gpu-2": "canceled", "gpu-3": "running", "gpu-4": "running"}

    eventually("gpu-2 alone is cancelled", is_canceled)
    for name in ("gpu-1", "gpu-3", "gpu-4"):
        stack.machine_ssh(address_of(demo, name), "touch /var/go")
    assert demo.ended(operation_id)["state"] == "partially_succeeded"
    statuses = {node["Name"]: node["Status"] for node in demo.nodes()}
    assert statuses == {"gpu-1": "Ready", "gpu-2": "Failed", "gpu-3": "Ready", "gpu-4": "Ready"}


@pytest.mark.parametrize("when", ["just before", "just after"])
def test_a_cancel_while_the_worker_dies_ends_the_step_all_the_same(
    stack: DevStack, cluster: Make, when: str
) -> None:
    demo = cluster(command("long", "exec sleep 4712"))
    operation_id = demo.create(2).json()["operationId"]
    demo.running(operation_id, "long", 2)
    addresses = [address_of(demo, name) for name in ("gpu-1", "gpu-2")]
    if when == "just before":
        stack.kill("worker")
    assert demo.cancel(operation_id).status_code == 202
    if when == "just after":
        stack.kill("worker")
    assert_all_canceled(demo, demo.ended(operation_id), 2)
    assert [left_of(stack, address, "4712") for address in addresses] == [[], []]


def test_what_an_unreachable_machine_cannot_confirm_is_said_and_settled_when_it_is_back(
    stack: DevStack, cluster: Make
) -> None:
    demo = cluster(command("long", "exec sleep 4713"))
    operation_id = demo.create(2).json()["operationId"]
    demo.running(operation_id, "long", 2)
    address = address_of(demo, "gpu-1")
    with stack.link_down(address):
        demo.cancel(operation_id)
        operation = demo.in_state(operation_id, "cancel_unconfirmed")
        states = {run["name"]: run["state"] for run in operation["progress"]}
        assert states["gpu-1"] == "cancel_unconfirmed"
        eventually(
            "the other node is cancelled meanwhile",
            lambda: demo.operation(operation_id)["progress"][1]["state"] == "canceled",
        )
        long = [step["state"] for step in demo.steps_of(operation_id) if step["step"] == "long"]
        assert sorted(long) == ["cancel_unconfirmed", "canceled"]
        (node,) = [node for node in demo.nodes() if node["Name"] == "gpu-1"]
        assert node["Status"] == "Preparing", "it still holds its machine, where the step may still run"
    assert_all_canceled(demo, demo.ended(operation_id), 2)
    assert left_of(stack, address, "4713") == []


def test_a_terminate_settles_a_cancel_that_nobody_can_confirm(stack: DevStack, cluster: Make) -> None:
    demo = cluster(command("long", "exec sleep 4714"))
    operation_id = demo.create(1).json()["operationId"]
    demo.running(operation_id, "long", 1)
    with stack.link_down(address_of(demo, "gpu-1")):
        demo.cancel(operation_id)
        demo.in_state(operation_id, "cancel_unconfirmed")
        ending = demo.terminate("gpu-1").json()["operationId"]
        assert demo.ended(ending)["state"] == "succeeded"
        assert demo.nodes() == []
        assert demo.ended(operation_id)["endTime"]


def test_a_cancelled_node_can_be_retried_and_goes_on_where_it_was(stack: DevStack, cluster: Make) -> None:
    demo = cluster(counted("before"), counted("wait", "[ -e /var/go ] || exec sleep 4715"), counted("after"))
    operation_id = demo.create(1).json()["operationId"]
    demo.running(operation_id, "wait", 1)
    address = address_of(demo, "gpu-1")
    demo.cancel(operation_id)
    demo.ended(operation_id)
    stack.machine_ssh(address, "touch /var/go")
    again = stack.fleet("operations/retry", operationId=operation_id)
    assert demo.ended(again["operationId"])["state"] == "succeeded"
    (node,) = demo.nodes()
    assert node["Status"] == "Ready"
    counts = {
        name: stack.machine_ssh(address, f"cat /var/count.{name}").split() for name in ("before", "wait")
    }
    assert counts == {"before": ["ran"], "wait": ["ran", "ran"]}


def test_what_has_ended_and_what_gives_nodes_up_cannot_be_cancelled(stack: DevStack, cluster: Make) -> None:
    demo = cluster(command("quick", "true"))
    created = demo.create(1).json()["operationId"]
    demo.ended(created)
    refused = demo.cancel(created)
    assert refused.status_code == 409
    assert "already ended: succeeded" in refused.json()["Message"]
    ending = demo.terminate("gpu-1").json()["operationId"]
    assert demo.cancel(ending).status_code == 409
    assert demo.ended(ending)["state"] == "succeeded"
