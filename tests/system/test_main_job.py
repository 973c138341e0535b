"""The main job through the front door: create, poll, list, read a log, terminate. All parts real."""

from collections.abc import Callable

import pytest

from tests.fixtures.dev_stack import Cluster, DevStack, eventually
from tests.system.conftest import MACHINES, command, counted

pytestmark = pytest.mark.system
Make = Callable[..., Cluster]


def test_three_nodes_become_ready_and_each_step_ran_exactly_once(stack: DevStack, cluster: Make) -> None:
    demo = cluster(counted("first"), counted("second", "echo second says hello; echo to stderr >&2"))
    answer = demo.create(3)
    assert answer.status_code == 202
    operation_id = answer.json()["operationId"]
    assert answer.headers["Location"].endswith(f"/operations/{operation_id}")
    # Read-your-writes: the nodes are there before anything has run.
    listed = stack.http.get(f"/clusters/{demo.name}/nodes", params={"operation": operation_id}).json()
    assert sorted(node["Name"] for node in listed["nodes"]) == ["gpu-1", "gpu-2", "gpu-3"]
    assert {node["TargetState"] for node in listed["nodes"]} == {"Started"}

    assert demo.ended(operation_id)["state"] == "succeeded"
    nodes = demo.nodes()
    assert {node["Status"] for node in nodes} == {"Ready"}
    assert [node["Hostname"] for node in nodes] == [node["Name"] for node in nodes]
    assert len({node["PrivateIp"] for node in nodes}) == 3
    for node in nodes:
        assert stack.machine_ssh(node["PrivateIp"], "hostname").strip() == node["Name"]
        counts = stack.machine_ssh(node["PrivateIp"], "cat /var/count.first /var/count.second")
        assert counts.split() == ["ran", "ran"]

    second = [step for step in demo.steps_of(operation_id) if step["step"] == "second"]
    assert {step["state"] for step in second} == {"succeeded"}
    assert len(second) == 3
    stdout = stack.fleet("operations/logs", stepRunId=second[0]["stepRunId"], stream="stdout", offset=0)
    stderr = stack.fleet("operations/logs", stepRunId=second[0]["stepRunId"], stream="stderr", offset=0)
    assert (stdout["data"], stdout["ended"]) == ("second says hello\n", True)
    assert stderr["data"] == "to stderr\n"


def test_a_terminated_node_vanishes_and_its_machine_is_wiped_and_ready_again(
    stack: DevStack, cluster: Make
) -> None:
    demo = cluster(counted("mark"), command("bye", "echo bye", phase="terminate"))
    demo.ended(demo.create(1).json()["operationId"])
    (node,) = demo.nodes()
    answer = demo.terminate("gpu-1")
    assert answer.status_code == 202
    assert answer.json()["nodes"] == [{"id": node["NodeId"], "name": "gpu-1", "status": "OK"}]
    operation_id = answer.json()["operationId"]
    assert demo.ended(operation_id)["state"] == "succeeded"
    assert demo.nodes() == []
    assert [step["step"] for step in demo.steps_of(operation_id)] == ["bye"]

    def machine_is_ready() -> bool:
        return bool(stack.fleet("nodes/get", nodeId=node["InstanceId"])["node"]["state"] == "ready")

    eventually("the machine is ready again", machine_is_ready)
    left = stack.machine_ssh(node["PrivateIp"], "ls /var/count.mark 2>/dev/null; hostname")
    assert "count" not in left
    assert left.strip() != "gpu-1"


def test_a_second_run_of_a_step_with_a_check_changes_nothing(cluster: Make) -> None:
    demo = cluster(
        command("make", "touch /var/made", check="test -e /var/made"),
        command("again", "touch /var/made", check="test -e /var/made"),
        command("never", "true", check="test -e /var/never"),
    )
    operation = demo.ended(demo.create(1).json()["operationId"])
    outcomes = {step["step"]: step["outcome"] for step in demo.steps_of(operation["id"])}
    assert outcomes["make"] == "changed"
    assert outcomes["again"] == "no-change"
    assert outcomes["never"] == "verify-failed"
    (node,) = demo.nodes()
    assert node["Status"] == "Failed"
    assert "its check still fails" in node["StatusMessage"]


def test_more_nodes_than_machines_gives_what_there_is_and_says_why(cluster: Make) -> None:
    demo = cluster(counted("one"))
    answer = demo.create(MACHINES + 3).json()
    (result,) = answer["sets"]
    assert result["added"] == MACHINES
    assert result["message"]
    assert demo.ended(answer["operationId"])["state"] == "succeeded"


def test_one_step_that_exits_1_fails_its_node_and_the_rest_goes_on(cluster: Make) -> None:
    demo = cluster(
        command("odd", 'echo "no luck on $BRINGUP_NODE" >&2; test "$BRINGUP_NODE" != gpu-2'),
        counted("after"),
    )
    operation = demo.ended(demo.create(3).json()["operationId"])
    assert operation["state"] == "partially_succeeded"
    by_name = {node["Name"]: node for node in demo.nodes()}
    assert by_name["gpu-2"]["Status"] == "Failed"
    assert by_name["gpu-2"]["State"] == "Error"
    for part in ("exit:", "step odd", "exited with status 1", "no luck on gpu-2"):
        assert part in by_name["gpu-2"]["StatusMessage"]
    assert by_name["gpu-1"]["Status"] == by_name["gpu-3"]["Status"] == "Ready"
    ran = {(step["name"], step["step"]) for step in demo.steps_of(operation["id"])}
    assert ("gpu-2", "after") not in ran


def test_a_step_that_never_ends_is_ended_at_its_timeout_with_all_its_children(
    stack: DevStack, cluster: Make
) -> None:
    endless = "setsid sh -c 'trap \"\" TERM; while :; do sleep 3071; done' & sleep 3071"
    demo = cluster(command("endless", endless, timeoutSeconds=2))
    operation = demo.ended(demo.create(1).json()["operationId"])
    assert operation["state"] == "failed"
    (node,) = demo.nodes()
    assert "timeout:" in node["StatusMessage"]
    assert "nothing of it is left" in node["StatusMessage"]
    machine = stack.fleet("nodes/get", nodeId=node["InstanceId"])["node"]
    left = stack.machine_ssh(machine["address"], "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "3071" not in left


def test_a_machine_that_does_not_answer_fails_its_node_by_name_and_the_rest_goes_on(
    stack: DevStack, cluster: Make
) -> None:
    demo = cluster(counted("one"))
    machine = stack.fleet("nodes/list")["items"][0]
    stack.machine_power(machine["name"], "power-off")
    try:
        operation = demo.ended(demo.create(MACHINES).json()["operationId"])
    finally:
        stack.machine_power(machine["name"], "power-on")
    assert operation["state"] == "partially_succeeded"
    (failed,) = [node for node in demo.nodes() if node["Status"] == "Unavailable"]
    assert failed["InstanceId"] == machine["id"]
    assert "connect:" in failed["StatusMessage"]
    assert f"{machine['address']}:22" in failed["StatusMessage"]
    assert "times over" in failed["StatusMessage"]
