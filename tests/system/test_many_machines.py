"""Fifty machines: a retry touches only what failed, and one that hangs keeps no other waiting."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.dev_stack import Cluster, DevStack, eventually
from tests.system.conftest import counted

pytestmark = [pytest.mark.system, pytest.mark.long]
MANY = 50
PICKY = {"gpu-3", "gpu-8", "gpu-13", "gpu-21", "gpu-34", "gpu-40", "gpu-50"}


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevStack]:
    """Everything, with fifty machines."""
    if os.geteuid() != 0:
        pytest.skip("machines need root")
    started = DevStack(Path(tmp_path_factory.mktemp("many")) / "data", machines=MANY)
    try:
        yield started.start(300)
    finally:
        started.close()


@pytest.fixture(scope="module")
def pool_of_many(many: DevStack) -> str:
    return many.pool_of_all_machines()


def test_of_fifty_nodes_the_seven_that_failed_at_step_four_go_on_from_there(
    many: DevStack, pool_of_many: str
) -> None:
    names = "|".join(sorted(PICKY))
    steps = [counted(f"step-{number}") for number in range(1, 7)]
    steps[3] = counted("step-4", f"case $BRINGUP_NODE in {names}) test -e /var/mended ;; esac")
    demo = Cluster(many, steps).make(pool_of_many)
    operation_id = demo.create(MANY).json()["operationId"]
    operation = demo.ended(operation_id, 300)
    assert operation["counts"] == {"succeeded": MANY - len(PICKY), "failed": len(PICKY)}
    addresses = {node["Name"]: many.address_of(node["InstanceId"]) for node in demo.nodes()}
    for name in PICKY:
        many.machine_ssh(addresses[name], "touch /var/mended")
    again = many.fleet("operations/retry", operationId=operation_id, only=["failed"])
    assert set(again["retried"]) == PICKY
    assert demo.ended(again["operationId"], 120)["state"] == "succeeded"
    ran = Counter((step["name"], step["step"]) for step in demo.steps_of(again["operationId"]))
    assert ran == Counter({(name, f"step-{number}"): 1 for name in PICKY for number in (4, 5, 6)})
    for name, address in addresses.items():
        counts = many.machine_ssh(address, "cd /var; wc -l count.step-* | head -6").split()[::2]
        assert counts == ["1", "1", "1", "2" if name in PICKY else "1", "1", "1"], name
    demo.clear()


def test_one_hung_machine_of_fifty_keeps_no_other_waiting(many: DevStack, pool_of_many: str) -> None:
    hang = "[ $BRINGUP_NODE != gpu-17 ] || { while [ ! -e /var/go ]; do sleep 0.2; done; }"
    demo = Cluster(many, [counted("one"), counted("two", hang), counted("three")]).make(pool_of_many)
    operation_id = demo.create(MANY).json()["operationId"]
    others = eventually(
        "the other 49 are ready",
        lambda: demo.operation(operation_id)["counts"].get("succeeded") == MANY - 1,
        300,
    )
    assert others
    operation = demo.operation(operation_id)
    assert (operation["state"], operation["counts"]["running"]) == ("running", 1)
    (node,) = [node for node in demo.nodes() if node["Status"] != "Ready"]
    assert node["Name"] == "gpu-17"
    many.machine_ssh(many.address_of(node["InstanceId"]), "touch /var/go")
    assert demo.ended(operation_id)["state"] == "succeeded"
    demo.clear()
