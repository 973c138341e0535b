"""What a run waits for is seen while it waits, wherever the run is seen, and is gone with it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.dev_stack import Cluster, DevStack, eventually
from tests.system.conftest import command, counted
from tests.system.test_cancelling import address_of

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]
Make = Callable[..., Cluster]


def waiting(cluster: Cluster, operation_id: str) -> str | None:
    """What the operation's only run waits for; the node says the same while it does."""
    (run,) = cluster.operation(operation_id)["progress"]
    said: str | None = run["waiting"]
    return said


def told(cluster: Cluster, operation_id: str, words: str) -> str:
    """Until the run waits for something with these words; what it says then, which its node says too."""

    def ask() -> str | None:
        said = waiting(cluster, operation_id)
        (node,) = cluster.nodes()
        return said if said and words in said and node["StatusMessage"] == said else None

    return eventually(f"it waits: {words}", ask)


def test_a_machine_that_does_not_answer_yet(stack: DevStack, cluster: Make) -> None:
    machines = stack.fleet("nodes/list", limit=500)["items"]
    off = [stack.link_down(one["address"]) for one in machines]
    demo = cluster(counted("one"))
    for link in off:
        link.__enter__()
    try:
        operation_id = demo.create(1).json()["operationId"]
        said = told(demo, operation_id, "waiting since ")
        assert "tried 2 times" in said
        assert ":22: " in said
        assert said in stack.cli("operations", "show", operation_id)
    finally:
        for link in off:
            link.__exit__(None, None, None)
    operation = demo.ended(operation_id)
    assert operation["state"] == "succeeded"
    assert operation["progress"][0]["waiting"] is None
    assert demo.nodes()[0]["StatusMessage"] == ""


def test_a_machine_that_goes_away_during_a_step(stack: DevStack, cluster: Make) -> None:
    demo = cluster(counted("long", "until [ -e /var/go ]; do sleep 0.1; done"))
    operation_id = demo.create(1).json()["operationId"]
    demo.running(operation_id, "long", 1)
    address = address_of(demo, "gpu-1")
    with stack.link_down(address):
        said = told(demo, operation_id, "step long: the machine has not answered since ")
        assert " UTC: " in said
    eventually("it is heard again", lambda: waiting(demo, operation_id) is None)
    stack.machine_ssh(address, "touch /var/go")
    assert demo.ended(operation_id)["state"] == "succeeded"


def test_a_step_that_is_tried_again(stack: DevStack, cluster: Make) -> None:
    picky = command("picky", "test -e /var/mended", retry={"attempts": 2, "backoffSeconds": 8})
    demo = cluster(picky)
    operation_id = demo.create(1).json()["operationId"]
    said = told(demo, operation_id, "tried again at ")
    assert "step picky" in said
    assert "exited with status 1" in said
    stack.machine_ssh(address_of(demo, "gpu-1"), "touch /var/mended")
    operation = demo.ended(operation_id)
    assert operation["state"] == "succeeded"
    assert operation["progress"][0]["waiting"] is None


def test_a_machine_that_reboots(stack: DevStack, cluster: Make) -> None:
    reboot: dict[str, Any] = {"name": "reboot", "uses": "reboot", "with": {}}
    demo = cluster(reboot, counted("after", "until [ -e /var/go ]; do sleep 0.1; done"))
    operation_id = demo.create(1).json()["operationId"]
    told(demo, operation_id, "step reboot: ")
    demo.running(operation_id, "after", 1)
    assert waiting(demo, operation_id) is None
    stack.machine_ssh(address_of(demo, "gpu-1"), "touch /var/go")
    assert demo.ended(operation_id)["state"] == "succeeded"


def test_a_machine_that_joins_before_it_answers(tmp_path: Path) -> None:
    """The machine's own record tells it: there is no node to do so."""
    if os.geteuid() != 0:
        pytest.skip("machines need root")
    stack = DevStack(tmp_path / "data", machines=1)
    try:
        _join_while_off(stack.start())
    finally:
        stack.close()


def _join_while_off(stack: DevStack) -> None:
    late = stack.grown(2)["local-2"]
    stack.machine_power("local-2", "power-off")
    joined = stack.fleet(
        "nodes/join",
        siteId=stack.ready["site"],
        name="local-2",
        address=late["address"],
        machineType="sandbox",
        keySecret="secret://file/ssh/local",
    )

    def record() -> dict[str, Any]:
        found: dict[str, Any] = stack.fleet("nodes/get", nodeId=joined["node"]["id"])["node"]
        return found

    eventually("the machine says that it waits", lambda: record()["message"].startswith("waiting since"))
    assert record()["state"] == "verifying"
    stack.machine_power("local-2", "power-on")
    eventually("it is ready", lambda: record()["state"] == "ready")
    assert record()["message"] == ""
