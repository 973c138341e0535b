"""Retry, hold and reboot on real machines."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.fixtures.dev_stack import Cluster, DevStack, eventually
from tests.system.conftest import command, counted
from tests.system.test_cancelling import address_of

pytestmark = pytest.mark.system
Make = Callable[..., Cluster]


def count(stack: DevStack, address: str, name: str) -> int:
    """How often a counted step ran on a machine."""
    return len(stack.machine_ssh(address, f"cat /var/count.{name} 2>/dev/null || true").split())


def test_a_retry_runs_only_what_failed_from_where_it_failed(stack: DevStack, cluster: Make) -> None:
    picky = "case $BRINGUP_NODE in gpu-2|gpu-3) test -e /var/mended ;; esac"
    demo = cluster(counted("one"), counted("two"), counted("three", picky), counted("four"))
    operation_id = demo.create(4).json()["operationId"]
    operation = demo.ended(operation_id)
    assert operation["state"] == "partially_succeeded"
    addresses = {node["Name"]: address_of(demo, node["Name"]) for node in demo.nodes()}
    for name in ("gpu-2", "gpu-3"):
        stack.machine_ssh(addresses[name], "touch /var/mended")
    again = stack.fleet("operations/retry", operationId=operation_id, only=["failed"])
    assert again["retried"] == ["gpu-2", "gpu-3"]
    retried = demo.ended(again["operationId"])
    assert retried["state"] == "succeeded"
    assert [node["Status"] for node in demo.nodes()] == ["Ready"] * 4
    ran = sorted((step["name"], step["step"]) for step in demo.steps_of(again["operationId"]))
    assert ran == [("gpu-2", "four"), ("gpu-2", "three"), ("gpu-3", "four"), ("gpu-3", "three")]
    for name, address in addresses.items():
        expected = {"one": 1, "two": 1, "three": 2 if name in ("gpu-2", "gpu-3") else 1, "four": 1}
        assert {step: count(stack, address, step) for step in expected} == expected
    refused = stack.http.post(
        "/api/compute/operations/retry", json={"tenantId": stack.ready["tenant"], "operationId": operation_id}
    )
    assert refused.status_code == 409, "what was retried has moved on, and is not retried twice"


def test_an_unreachable_node_is_told_apart_from_a_failed_one_and_can_be_retried(
    stack: DevStack, cluster: Make
) -> None:
    demo = cluster(counted("one"))
    machines = stack.fleet("nodes/list", limit=500)["items"]
    off = machines[0]
    stack.machine_power(off["name"], "power-off")
    try:
        operation_id = demo.create(len(machines)).json()["operationId"]
        operation = demo.ended(operation_id)
    finally:
        stack.machine_power(off["name"], "power-on")
    assert operation["state"] == "partially_succeeded"
    (away,) = [run for run in operation["progress"] if run["state"] == "failed"]
    assert away["unreachable"] is True
    assert operation["counts"] == {"succeeded": len(machines) - 1, "unreachable": 1}
    (node,) = [node for node in demo.nodes() if node["Name"] == away["name"]]
    assert (node["Status"], node["State"]) == ("Unavailable", "Error")
    assert off["address"] in node["StatusMessage"]
    again = stack.fleet("operations/retry", operationId=operation_id, only=["unreachable"])
    assert demo.ended(again["operationId"])["state"] == "succeeded"


def held(demo: Cluster, operation_id: str) -> dict[str, Any]:
    """The held run of an operation."""
    operation = demo.in_state(operation_id, "held")
    (run,) = [run for run in operation["progress"] if run["state"] == "held"]
    return dict(run)


def test_a_held_node_keeps_everything_until_somebody_resumes_it(stack: DevStack, cluster: Make) -> None:
    demo = cluster(
        counted("before"),
        counted("picky", "echo looked >> /var/seen; test -e /var/mended") | {"onFailure": "hold"},
        counted("after"),
    )
    operation_id = demo.create(1).json()["operationId"]
    run = held(demo, operation_id)
    assert run["message"].startswith("exit: step picky:")
    (node,) = demo.nodes()
    assert node["Status"] == "Preparing"
    assert "resume or abort" in node["StatusMessage"]
    address = stack.address_of(node["InstanceId"])
    assert stack.machine_ssh(address, "cat /var/seen").split() == ["looked"], "it waits, and looks at nothing"
    stack.fleet("operations/resume", operationId=operation_id)
    eventually("it is held again", lambda: count(stack, address, "picky") == 2)
    held(demo, operation_id)
    stack.machine_ssh(address, "touch /var/mended")
    stack.fleet("operations/resume", operationId=operation_id, names=["gpu-1"])
    assert demo.ended(operation_id)["state"] == "succeeded"
    assert [count(stack, address, name) for name in ("before", "picky", "after")] == [1, 3, 1]


def test_a_hold_outlives_the_worker_and_an_abort_ends_it(stack: DevStack, cluster: Make) -> None:
    demo = cluster(command("picky", "exit 9", onFailure="hold"))
    operation_id = demo.create(1).json()["operationId"]
    held(demo, operation_id)
    stack.kill("worker")
    stack.fleet("operations/abort", operationId=operation_id)
    assert demo.ended(operation_id)["state"] == "failed"
    (node,) = demo.nodes()
    assert node["StatusMessage"].startswith("exit: step picky: exited with status 9")


def boot_id(stack: DevStack, address: str) -> str:
    return stack.machine_ssh(address, "cat /proc/sys/kernel/random/boot_id").strip()


REBOOT = {"name": "reboot", "uses": "reboot", "timeoutSeconds": 60}


def test_a_reboot_ends_with_a_new_boot_and_the_steps_after_it_run_once(
    stack: DevStack, cluster: Make
) -> None:
    demo = cluster(
        command("before", "cat /proc/sys/kernel/random/boot_id > /var/boot"), REBOOT, counted("after")
    )
    operation_id = demo.create(2).json()["operationId"]
    assert demo.ended(operation_id)["state"] == "succeeded"
    for node in demo.nodes():
        before = stack.machine_ssh(node["PrivateIp"], "cat /var/boot").strip()
        assert boot_id(stack, node["PrivateIp"]) != before
        assert count(stack, node["PrivateIp"], "after") == 1
    steps = [step for step in demo.steps_of(operation_id) if step["step"] == "reboot"]
    assert [(step["state"], step["outcome"], step["attempt"]) for step in steps] == [
        ("succeeded", "changed", 1)
    ] * 2


def test_a_reboot_survives_the_death_of_the_worker(stack: DevStack, cluster: Make) -> None:
    slow = counted("reboot", "sleep 2; reboot") | {"disruption": "reboot", "timeoutSeconds": 60}
    demo = cluster(slow, counted("after"))
    operation_id = demo.create(1).json()["operationId"]
    demo.running(operation_id, "reboot", 1)
    stack.kill("worker")
    assert demo.ended(operation_id)["state"] == "succeeded"
    (node,) = demo.nodes()
    assert [count(stack, node["PrivateIp"], name) for name in ("reboot", "after")] == [1, 1]


def test_a_reboot_that_does_not_come_ends_at_its_deadline(stack: DevStack, cluster: Make) -> None:
    demo = cluster(command("reboot", "true", disruption="reboot", timeoutSeconds=3))
    operation_id = demo.create(1).json()["operationId"]
    assert demo.ended(operation_id)["state"] == "failed"
    (node,) = demo.nodes()
    assert node["StatusMessage"].startswith(
        "timeout: step reboot: the machine has not rebooted within the step's timeout of 3 s"
    )


def test_a_reboot_step_whose_body_fails_fails_at_once(stack: DevStack, cluster: Make) -> None:
    demo = cluster(command("reboot", "echo no firmware >&2; exit 4", disruption="reboot"))
    operation_id = demo.create(1).json()["operationId"]
    assert demo.ended(operation_id)["state"] == "failed"
    assert demo.nodes()[0]["StatusMessage"].startswith(
        "exit: step reboot: exited with status 4 (no firmware)"
    )


def test_a_machine_that_comes_back_with_another_host_key_is_refused(stack: DevStack, cluster: Make) -> None:
    forge = (
        "rm /etc/ssh/ssh_host_*; ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key; "
        "grep -q ssh_host_ed25519_key /etc/ssh/sshd_bringup; reboot"
    )
    demo = cluster(command("forge", forge, disruption="reboot", timeoutSeconds=60), counted("after"))
    operation_id = demo.create(1).json()["operationId"]
    assert demo.ended(operation_id)["state"] == "failed"
    (node,) = demo.nodes()
    assert node["StatusMessage"].startswith("host-key:")
    assert [step["step"] for step in demo.steps_of(operation_id)].count("after") == 0


def test_a_second_run_of_the_same_plan_changes_nothing_and_says_so(stack: DevStack, cluster: Make) -> None:
    demo = cluster(
        command("file", "echo one > /etc/one", check="grep -qx one /etc/one"),
        command("elsewhere", "exit 1", check="exit 77"),
        command("last", "test -e /var/mended", check="test -e /var/mended"),
    )
    operation_id = demo.create(1).json()["operationId"]
    first = demo.ended(operation_id)
    assert first["state"] == "failed"
    stack.machine_ssh(address_of(demo, "gpu-1"), "touch /var/mended")
    again = stack.fleet("operations/retry", operationId=operation_id, **{"from": "start"})
    assert demo.ended(again["operationId"])["state"] == "succeeded"
    outcomes = {step["step"]: step["outcome"] for step in demo.steps_of(again["operationId"])}
    assert outcomes == {
        "hostname": "no-change",
        "file": "no-change",
        "elsewhere": "skipped",
        "last": "no-change",
    }
    assert demo.operation(again["operationId"])["changes"] == {"changed": 0, "no-change": 3, "skipped": 1}
