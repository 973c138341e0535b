"""What hangs, and what takes long, holds up nobody else."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fixtures.dev_stack import Cluster, DevStack, eventually
from tests.system.conftest import command, counted
from tests.system.test_cancelling import address_of

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]
Make = Callable[..., Cluster]


def states(cluster: Cluster, operation_id: str) -> dict[str, str]:
    """The state of each run of an operation, all as of one moment."""
    return {run["name"]: run["state"] for run in cluster.operation(operation_id)["progress"]}


def ready_while_others_run(cluster: Cluster, operation_id: str, hung: set[str]) -> None:
    """Until all but the hung nodes have succeeded; these must then still be running."""

    def others_done() -> dict[str, str] | None:
        found = states(cluster, operation_id)
        others = {state for name, state in found.items() if name not in hung}
        return found if others == {"succeeded"} else None

    found = eventually("the other nodes are Ready", others_done, 120)
    assert {found[name] for name in hung} == {"running"}
    assert cluster.operation(operation_id)["state"] == "running"


def test_machines_that_hang_from_the_start_do_not_hold_up_the_others(stack: DevStack, cluster: Make) -> None:
    demo = cluster(counted("one"), counted("two"))
    cut, frozen = (one["address"] for one in stack.fleet("nodes/list", limit=500)["items"][:2])
    with stack.link_down(cut), stack.sshd_frozen(frozen):
        operation_id = demo.create(4).json()["operationId"]
        eventually("every machine is claimed", lambda: all("InstanceId" in node for node in demo.nodes()))
        at = {name: address_of(demo, name) for name in states(demo, operation_id)}
        hung = {name for name, address in at.items() if address in (cut, frozen)}
        assert len(hung) == 2
        ready_while_others_run(demo, operation_id, hung)
    assert demo.ended(operation_id)["state"] == "succeeded"


def test_machines_that_hang_in_the_middle_of_a_step_do_not_hold_up_the_others(
    stack: DevStack, cluster: Make
) -> None:
    demo = cluster(counted("wait", "until [ -e /var/go ]; do sleep 0.1; done"), counted("after"))
    operation_id = demo.create(4).json()["operationId"]
    demo.running(operation_id, "wait", 4)
    at = {name: address_of(demo, name) for name in states(demo, operation_id)}
    with stack.link_down(at["gpu-1"]), stack.sshd_frozen(at["gpu-2"]):
        for name in ("gpu-3", "gpu-4"):
            stack.machine_ssh(at[name], "touch /var/go")
        ready_while_others_run(demo, operation_id, {"gpu-1", "gpu-2"})
    for name in ("gpu-1", "gpu-2"):
        stack.machine_ssh(at[name], "touch /var/go")
    assert demo.ended(operation_id)["state"] == "succeeded"
    for address in at.values():
        assert stack.machine_ssh(address, "cat /var/count.wait /var/count.after").split() == ["ran", "ran"]


@pytest.fixture
def narrow_stack(tmp_path: Path) -> Iterator[DevStack]:
    """Five machines, and a worker with four places."""
    if os.geteuid() != 0:
        pytest.skip("machines need root")
    started = DevStack(tmp_path / "data", machines=5, environment={"BRINGUP_MACHINE_THREADS": "4"})
    try:
        yield started.start()
    finally:
        started.close()


def join_own_machine(theirs: DevStack, name: str) -> None:
    """A machine that has joined nothing becomes this tenant's."""
    key = theirs.data_dir / "secrets" / theirs.ready["tenant"] / "ssh" / "own"
    key.parent.mkdir(parents=True)
    shutil.copy(theirs.data_dir / "sandbox/ssh/id_ed25519", key)
    machine = theirs.grown(6)[name]
    theirs.fleet("machineTypes/create", name="sandbox", vcpu=1, memoryGb=1, gpuCount=0)
    theirs.fleet(
        "nodes/join",
        siteId=theirs.ready["site"],
        name=name,
        address=machine["address"],
        keySecret="secret://file/ssh/own",
        machineType="sandbox",
        bmc={"address": machine["bmc"]},
    )
    eventually(
        f"{name} is ready",
        lambda: [one["state"] for one in theirs.fleet("nodes/list")["items"]] == ["ready"],
        120,
    )


def test_more_endless_steps_than_places_do_not_starve_another_tenant(narrow_stack: DevStack) -> None:
    endless = "echo ran >> /var/count.endless; while [ ! -e /var/go ]; do echo tick; sleep 0.1; done"
    busy = Cluster(narrow_stack, [command("endless", endless, timeoutSeconds=3600)])
    busy.make(narrow_stack.pool_of_all_machines())
    long = busy.create(5).json()["operationId"]
    busy.running(long, "endless", 5)

    theirs = narrow_stack.as_tenant("other")
    join_own_machine(theirs, "local-6")
    quick = Cluster(theirs, [counted("one"), counted("two"), counted("three")])
    quick.make(theirs.pool_of_all_machines())
    short = quick.create(1).json()["operationId"]
    assert quick.ended(short, 150)["state"] == "succeeded"
    assert [node["Status"] for node in quick.nodes()] == ["Ready"]

    before = busy.running(long, "endless", 5)
    # The five share three places, in turns: each of them is heard again, and was run once.
    sizes = {step["stepRunId"]: step["stdoutSize"] for step in before}
    eventually("every step is followed again", lambda: _all_grown(busy, long, sizes), 120)
    for name in states(busy, long):
        narrow_stack.machine_ssh(address_of(busy, name), "touch /var/go")
    assert busy.ended(long, 150)["state"] == "succeeded"
    for step in busy.steps_of(long):
        assert step["attempt"] == 1
    for node in busy.nodes():
        assert narrow_stack.machine_ssh(node["PrivateIp"], "cat /var/count.endless").split() == ["ran"]


def test_more_machines_that_went_away_than_places_do_not_starve_another_tenant(
    narrow_stack: DevStack,
) -> None:
    busy = Cluster(narrow_stack, [counted("wait", "until [ -e /var/go ]; do sleep 0.1; done")])
    busy.make(narrow_stack.pool_of_all_machines())
    long = busy.create(5).json()["operationId"]
    busy.running(long, "wait", 5)
    theirs = narrow_stack.as_tenant("other")
    join_own_machine(theirs, "local-6")
    quick = Cluster(theirs, [counted("one"), counted("two")])
    quick.make(theirs.pool_of_all_machines())
    at = [address_of(busy, name) for name in states(busy, long)]
    with ExitStack() as cut:
        for address in at:
            cut.enter_context(narrow_stack.link_down(address))
        eventually(
            "every machine is seen to be away",
            lambda: all("has not answered" in text for text in waiting(busy, long)),
        )
        short = quick.create(1).json()["operationId"]
        assert quick.ended(short, 150)["state"] == "succeeded"
        assert set(states(busy, long).values()) == {"running"}
    for address in at:
        narrow_stack.machine_ssh(address, "touch /var/go")
    assert busy.ended(long, 150)["state"] == "succeeded"
    for address in at:
        assert narrow_stack.machine_ssh(address, "cat /var/count.wait").split() == ["ran"]


def waiting(cluster: Cluster, operation_id: str) -> list[str]:
    """What each run of an operation says that it waits for."""
    return [run["waiting"] or "" for run in cluster.operation(operation_id)["progress"]]


def _all_grown(cluster: Cluster, operation_id: str, sizes: dict[int, int]) -> bool:
    steps = [step for step in cluster.steps_of(operation_id) if step["stepRunId"] in sizes]
    return all(step["stdoutSize"] > sizes[step["stepRunId"]] for step in steps)
