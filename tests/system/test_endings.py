"""However the end of a step gets lost: it is recorded as it was, and nothing runs beside it or after it."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.dev_stack import Cluster, DevStack, eventually
from tests.system.conftest import command, counted
from tests.system.test_cancelling import address_of, left_of
from workflows.client import connect

pytestmark = pytest.mark.system
Make = Callable[..., Cluster]
RUNS = "/var/lib/bringup/runs"
# Longer than these tests, ended by nothing but the supervisor, and known by its number.
BODY = "trap '' TERM; echo start $BRINGUP_ATTEMPT >> /var/runs; while :; do sleep 4733; done"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevStack]:
    """A machine that goes away during a step is given up after seconds here."""
    if os.geteuid() != 0:
        pytest.skip("machines need root")
    folder = Path(tmp_path_factory.mktemp("endings")) / "data"
    started = DevStack(folder, machines=2, environment={"BRINGUP_LOST_SECONDS": "5"})
    try:
        yield started.start()
    finally:
        started.close()


@pytest.fixture(scope="module")
def pool(stack: DevStack) -> str:
    return stack.pool_of_all_machines()


def the_step(cluster: Cluster, operation_id: str, attempt: int = 1) -> dict[str, Any]:
    """What is recorded of an attempt of the step `work`."""
    (step,) = [
        step
        for step in cluster.steps_of(operation_id)
        if (step["step"], step["attempt"]) == ("work", attempt)
    ]
    return step


def begun(cluster: Cluster) -> tuple[str, str]:
    """Creates one node and waits until its step `work` runs; operation id and the machine's address."""
    operation_id = cluster.create(1).json()["operationId"]
    cluster.running(operation_id, "work", 1)
    address = address_of(cluster, "gpu-1")
    eventually("the body runs", lambda: left_of(cluster.stack, address, "4733"))
    return operation_id, address


def kill_runner(stack: DevStack, address: str) -> None:
    stack.machine_ssh(address, f"kill -9 $(sed -n 's/^runner \\([0-9]*\\) .*/\\1/p' {RUNS}/*_st | tail -n 1)")


def starts(stack: DevStack, address: str) -> list[str]:
    return stack.machine_ssh(address, "cat /var/runs").splitlines()


def test_an_attempt_that_was_cut_off_ends_before_the_next_begins(stack: DevStack, cluster: Make) -> None:
    demo = cluster(command("work", BODY, check="test -e /var/never", timeoutSeconds=3000))
    operation_id, address = begun(demo)
    with stack.link_down(address):
        eventually(
            "the first attempt is given up",
            lambda: [step for step in demo.steps_of(operation_id) if step["attempt"] == 2],
            120,
        )
        assert the_step(demo, operation_id)["card"]["failure_class"] == "lost-machine"
    eventually("the second begins", lambda: starts(stack, address) == ["start 1", "start 2"])
    assert len(left_of(stack, address, "4733")) == 1
    demo.cancel(operation_id)
    assert demo.ended(operation_id)["state"] == "canceled"
    assert left_of(stack, address, "4733") == []


def test_a_cancel_ends_an_attempt_that_was_given_up_for_lost(stack: DevStack, cluster: Make) -> None:
    demo = cluster(command("work", BODY, onFailure="hold", timeoutSeconds=3000))
    operation_id, address = begun(demo)
    with stack.link_down(address):
        demo.in_state(operation_id, "held", 120)
        demo.cancel(operation_id)
        demo.in_state(operation_id, "cancel_unconfirmed")
        (node,) = demo.nodes()
        assert "the machine cannot confirm that none of its steps is left" in node["StatusMessage"]
    assert demo.ended(operation_id)["state"] == "canceled"
    assert left_of(stack, address, "4733") == []
    assert the_step(demo, operation_id)["state"] == "failed"


def test_a_step_that_had_ended_before_its_cancel_is_recorded_as_it_ended(
    stack: DevStack, cluster: Make
) -> None:
    body = "echo start >> /var/runs; (while [ ! -e /var/go ]; do sleep 0.05; done); seq 1 1000; exit 0"
    demo = cluster(command("work", body, timeoutSeconds=120), counted("after"))
    operation_id = demo.create(1).json()["operationId"]
    demo.running(operation_id, "work", 1)
    address = address_of(demo, "gpu-1")
    worker = stack.kill("worker", signal.SIGSTOP)
    stack.machine_ssh(address, f"touch /var/go; until grep -q exited {RUNS}/*.1.1_st; do sleep 0.05; done")
    demo.cancel(operation_id)
    os.kill(worker, signal.SIGKILL)
    assert demo.ended(operation_id, 120)["state"] == "canceled"
    step = the_step(demo, operation_id)
    assert (step["state"], step["outcome"], step["exitStatus"]) == ("succeeded", "changed", 0)
    assert stack.log(step["stepRunId"], "stdout") == b"".join(b"%d\n" % n for n in range(1, 1001))
    assert [step["step"] for step in demo.steps_of(operation_id)][-1] == "work"
    retried = stack.fleet("operations/retry", operationId=operation_id)["operationId"]
    assert demo.ended(retried)["state"] == "succeeded"
    assert starts(stack, address) == ["start"]


def test_the_log_of_a_cancelled_step_is_whole_though_its_worker_was_frozen_and_died(
    stack: DevStack, cluster: Make
) -> None:
    body = "until [ -e /var/go ]; do sleep 0.05; done; seq 1 1000; touch /var/said; exec sleep 3600"
    demo = cluster(command("work", body, timeoutSeconds=3000))
    operation_id = demo.create(1).json()["operationId"]
    demo.running(operation_id, "work", 1)
    address = address_of(demo, "gpu-1")
    worker = stack.kill("worker", signal.SIGSTOP)
    stack.machine_ssh(address, "touch /var/go; until [ -e /var/said ]; do sleep 0.05; done")
    demo.cancel(operation_id)
    os.kill(worker, signal.SIGKILL)
    assert demo.ended(operation_id, 120)["state"] == "canceled"
    step = the_step(demo, operation_id)
    assert step["state"] == "canceled"
    assert stack.log(step["stepRunId"], "stdout") == b"".join(b"%d\n" % n for n in range(1, 1001))


def test_a_step_whose_supervisor_died_is_lost_and_not_cancelled_though_the_worker_dies_then(
    stack: DevStack, cluster: Make
) -> None:
    demo = cluster(command("work", BODY, timeoutSeconds=3000))
    operation_id, address = begun(demo)
    kill_runner(stack, address)
    eventually(
        "the worker is about to end what is left",
        lambda: (
            stack.machine_ssh(address, "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c ' cancel ' || :")
            != "0\n"
        ),
    )
    stack.kill("worker")
    assert demo.ended(operation_id, 120)["state"] == "failed"
    step = the_step(demo, operation_id)
    assert (step["state"], step["card"]["failure_class"]) == ("failed", "lost-machine")
    assert "nothing of it is left" in step["card"]["message"]
    assert left_of(stack, address, "4733") == []


def test_a_step_whose_records_are_gone_is_lost_and_ended_before_its_next_attempt(
    stack: DevStack, cluster: Make
) -> None:
    body = f"echo start $BRINGUP_ATTEMPT >> /var/runs; [ $BRINGUP_ATTEMPT = 1 ] || exit 0\necho said\n{BODY}"
    demo = cluster(command("work", body, check="grep -q 'start 2' /var/runs", timeoutSeconds=3000))
    operation_id, address = begun(demo)
    eventually("its output is stored", lambda: the_step(demo, operation_id)["stdoutSize"])
    stack.machine_ssh(address, f"rm -rf {RUNS}/*")
    stack.kill("worker")
    assert demo.ended(operation_id, 120)["state"] == "succeeded"
    card = the_step(demo, operation_id)["card"]
    assert card["failure_class"] == "lost-machine"
    assert "the records of step" in card["message"]
    assert left_of(stack, address, "4733") == []
    assert the_step(demo, operation_id, 2)["state"] == "succeeded"


def test_the_step_of_a_workflow_that_was_terminated_by_hand_is_ended(stack: DevStack, cluster: Make) -> None:
    demo = cluster(command("work", BODY, timeoutSeconds=3000))
    operation_id, address = begun(demo)

    async def terminate() -> None:
        client = await connect(stack.ready["temporal"], "default")
        await client.get_workflow_handle(f"node/{demo.nodes()[0]['NodeId']}").terminate("by hand")

    asyncio.run(terminate())
    assert demo.ended(operation_id)["state"] == "failed"
    eventually("the machine is cleared of it", lambda: left_of(stack, address, "4733") == [])
    retried = stack.fleet("operations/retry", operationId=operation_id)["operationId"]
    eventually("it runs again", lambda: starts(stack, address) == ["start 1", "start 1"])
    demo.cancel(retried)
    assert demo.ended(retried)["state"] == "canceled"


def test_a_reboot_from_which_the_machine_does_not_come_back_is_a_lost_machine_at_its_deadline(
    stack: DevStack, cluster: Make
) -> None:
    """Going away is what such a step is for: it is its own timeout that counts, not the patience else."""
    body = "touch /var/off; sleep 3600"
    demo = cluster(command("work", body, disruption="reboot", timeoutSeconds=12), counted("after"))
    operation_id = demo.create(1).json()["operationId"]
    demo.running(operation_id, "work", 1)
    address = address_of(demo, "gpu-1")
    eventually("the body runs", lambda: stack.machine_ssh(address, "ls /var/off || :"))
    name = stack.machine_at(address)
    stack.machine_power(name, "power-off")
    try:
        assert demo.ended(operation_id, 120)["counts"] == {"unreachable": 1}
    finally:
        stack.machine_power(name, "power-on")
    step = the_step(demo, operation_id)
    assert step["card"]["failure_class"] == "lost-machine"
    assert step["card"]["message"].startswith("the machine has not come back (")
    assert step["card"]["message"].endswith("within the step's timeout of 12 s")
    (node,) = demo.nodes()
    assert node["Status"] == "Unavailable"
    assert [one["step"] for one in demo.steps_of(operation_id)][-1] == "work"
