"""Every failure from its real cause: its class, and one text wherever it is shown.

All node faults happen in one create: an array for each, with a pool of one machine and a profile of its own.
Failures of machines' own runs are joins and a cleaning beside it.
"""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from providers.sandbox.layout import SiteLayout
from providers.sandbox.site import SandboxSite
from tests.fixtures.dev_stack import Cluster, DevStack, eventually
from tests.system.faults import FAULTS, SLEEP, SPARE_SECRET, Fault, Scene, work
from tests.system.shown import Shown, assert_told_the_same_everywhere, end_of, ended, fleet_operation

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

# Of machines' own runs: the class, and what is said.
MACHINE_FAULTS = {
    "unanswered": ("connect", "TCP connect failed"),
    "unprivileged": ("privilege", "sudo"),
    "unmanaged": ("provider", "there is no such machine"),
    "unwiped": ("provider", "there is no such machine"),
}
# That bringup dev joins: one for each fault but the one whose secret is its own, and two for later ends.
JOINED = len(FAULTS) - 1 + 2
SPARE, GUEST, FREE = (f"local-{JOINED + number}" for number in (1, 2, 3))
GUEST_USER = (
    "useradd -m -p '*' guest; install -d -o guest /home/guest/.ssh; "
    "install -o guest /root/.ssh/authorized_keys /home/guest/.ssh/"
)


def join(stack: DevStack, name: str, address: str, **more: Any) -> tuple[str, str]:
    """Asks for a join; the machine's id and the operation's."""
    answer = stack.fleet(
        "nodes/join",
        siteId=stack.ready["site"],
        name=name,
        address=address,
        machineType="sandbox",
        **{"keySecret": "secret://file/ssh/local", **more},
    )
    return answer["node"]["id"], answer["operationId"]


@pytest.fixture(scope="module")
def big_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevStack]:
    """A machine for each fault."""
    if os.geteuid() != 0:
        pytest.skip("machines need root")
    started = DevStack(
        Path(tmp_path_factory.mktemp("cards")) / "data",
        machines=JOINED,
        environment={"BRINGUP_REACH_SECONDS": "5"},
    )
    try:
        yield started.start(180)
    finally:
        started.close()


@pytest.fixture(scope="module")
def machines(big_stack: DevStack) -> dict[str, dict[str, Any]]:
    """All machines of the site by name, as their provider knows them."""
    return big_stack.grown(JOINED + 3)


@pytest.fixture(scope="module")
def spare(big_stack: DevStack, machines: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A machine whose key was a secret of its own, and is gone."""
    secrets = big_stack.data_dir / "secrets" / big_stack.ready["tenant"]
    shutil.copy(secrets / "ssh/local", secrets / SPARE_SECRET)
    key = f"secret://file/{SPARE_SECRET}"
    machine_id, operation_id = join(big_stack, SPARE, machines[SPARE]["address"], keySecret=key)
    assert ended(big_stack, operation_id)["state"] == "succeeded"
    (secrets / SPARE_SECRET).unlink()
    node: dict[str, Any] = big_stack.fleet("nodes/get", nodeId=machine_id)["node"]
    return node


def make_cluster(stack: DevStack, machines: dict[str, dict[str, Any]]) -> str:
    """A cluster of one array, pool and profile for each fault."""
    arrays = []
    for name, fault in FAULTS.items():
        made = stack.fleet("pools/create", siteId=stack.ready["site"], **{"class": "metal-host"})
        pool = made["pool"]["id"]
        stack.fleet("nodes/assignPool", poolId=pool, nodeIds=[machines[name]["id"]])
        stack.fleet("profiles/create", name=name, content={"schema": 1, "steps": fault.steps})
        arrays.append({"name": name, "poolId": pool, "profile": f"{stack.ready['tenant']}/{name}@1"})
    stack.fleet("clusters/create", name="faults", nodeArrays=arrays)
    return "faults"


def prepare(stack: DevStack, fault: Fault, address: str) -> None:
    """Brings the fault about, and cuts every connection of before."""
    sshd = stack.machine_processes(address, "sshd")
    stack.machine_ssh(address, fault.before)
    for pid in sshd:
        os.kill(pid, signal.SIGKILL)


def is_running(scene: Scene, fault: str) -> bool:
    steps = scene.stack.fleet(
        "operations/steps", operationId=scene.operation_id, name=f"{fault}-1", limit=500
    )["items"]
    return any((step["step"], step["state"]) == ("work", "running") for step in steps)


@pytest.fixture(scope="module")
def scene(big_stack: DevStack, spare: dict[str, Any]) -> Scene:
    """The create, once everything that was to go wrong has gone wrong."""
    known = {one["name"]: one for one in big_stack.fleet("nodes/list", limit=500)["items"]}
    others = [name for name in FAULTS if name != "secretless"]
    chosen = {name: known[f"local-{number}"] for number, name in enumerate(others, 1)}
    chosen["secretless"] = spare
    made = Scene(big_stack, make_cluster(big_stack, chosen), machines=chosen)
    for name, fault in FAULTS.items():
        if fault.before:
            prepare(big_stack, fault, chosen[name]["address"])
    big_stack.machine_power(chosen["off"]["name"], "power-off")
    answer = big_stack.http.post(
        "/clusters/faults/nodes/create", json={"sets": [{"count": 1, "nodearray": name} for name in FAULTS]}
    )
    assert answer.status_code == 202, answer.text
    made.operation_id = answer.json()["operationId"]
    for name, fault in FAULTS.items():
        if fault.during is not None:
            eventually(f"the step of {name} runs", lambda name=name: is_running(made, name))  # type: ignore[misc]
            fault.during(made, name)
    ended(big_stack, made.operation_id)
    return made


@pytest.fixture(scope="module")
def shown(scene: Scene) -> dict[str, Shown]:
    """Each node's failure, as every place shows it."""
    stack = scene.stack
    nodes = scene.nodes()
    fleet = {run["name"]: run for run in fleet_operation(stack, scene.operation_id)["progress"]}
    cluster = stack.http.get(f"/operations/{scene.operation_id}").json()["progress"]
    printed = stack.cli("operations", "show", scene.operation_id)
    steps = stack.fleet("operations/steps", operationId=scene.operation_id, limit=500)["items"]
    found = {}
    for run in cluster:
        fault = run["name"].rpartition("-")[0]
        found[fault] = Shown(
            card=run["card"],
            messages={
                "the cluster API's operation": run["message"],
                "the fleet API's operation": fleet[run["name"]]["message"],
                "StatusMessage": nodes[fault]["StatusMessage"],
            },
            cli=printed,
            ended=end_of(stack, f"node/{run['nodeId']}"),
            status=nodes[fault]["Status"],
            steps=[step for step in steps if step["name"] == run["name"] and step["card"]],
        )
    return found


@pytest.mark.parametrize("name", FAULTS)
def test_a_node_that_fails_says_why_in_the_same_words_everywhere(shown: dict[str, Shown], name: str) -> None:
    fault, failure = FAULTS[name], shown[name]
    text = assert_told_the_same_everywhere(failure, fault.failure_class, fault.says)
    assert failure.status == fault.status
    assert failure.card["step"] == fault.step
    if fault.step is not None:
        (step,) = failure.steps
        assert (step["step"], step["message"]) == (fault.step, text)
    assert isinstance(failure.ended, fault.workflow)
    if isinstance(failure.ended, ApplicationError):
        assert failure.ended.message == text
        assert failure.ended.type == fault.failure_class


def pool_of(stack: DevStack, name: str) -> str:
    """A pool of one machine."""
    (machine,) = [one for one in stack.fleet("nodes/list", limit=500)["items"] if one["name"] == name]
    made = stack.fleet("pools/create", siteId=stack.ready["site"], **{"class": "metal-host"})
    pool: str = made["pool"]["id"]
    stack.fleet("nodes/assignPool", poolId=pool, nodeIds=[machine["id"]])
    return pool


def cleaning_of(stack: DevStack, machine: str) -> str:
    """The operation that cleans a machine, once there is one."""

    def ask() -> str | None:
        found = stack.fleet("operations/list", limit=100)["items"]
        return next((o["id"] for o in found if (o["action"], o["machine"]) == ("clean", machine)), None)

    return eventually(f"{machine} is cleaned", ask)


@pytest.fixture(scope="module")
def machine_operations(big_stack: DevStack, machines: dict[str, dict[str, Any]]) -> dict[str, str]:
    """The operation of each machine's failure; all are under way at the same time."""
    demo = Cluster(big_stack, work("true")).make(pool_of(big_stack, f"local-{JOINED}"))
    demo.ended(demo.create(1).json()["operationId"])
    SandboxSite(big_stack.data_dir / "sandbox").destroy(f"local-{JOINED}")
    demo.terminate("gpu-1")
    guest, free = machines[GUEST]["address"], machines[FREE]["address"]
    big_stack.machine_ssh(guest, GUEST_USER)
    nobody = str(SiteLayout(big_stack.data_dir / "sandbox").subnet()[-3])
    return {
        "unanswered": join(big_stack, "unanswered", nobody)[1],
        "unprivileged": join(big_stack, "unprivileged", guest, user="guest")[1],
        "unmanaged": join(big_stack, "unmanaged", free, bmc={"address": "sandbox://no-such-machine"})[1],
        "unwiped": cleaning_of(big_stack, f"local-{JOINED}"),
    }


@pytest.mark.parametrize("name", MACHINE_FAULTS)
def test_a_machine_that_fails_says_why_in_the_same_words_everywhere(
    big_stack: DevStack, machine_operations: dict[str, str], name: str
) -> None:
    failure_class, says = MACHINE_FAULTS[name]
    operation = ended(big_stack, machine_operations[name])
    (run,) = operation["progress"]
    machine = big_stack.fleet("nodes/get", nodeId=run["nodeId"])["node"]
    failure = Shown(
        card=run["card"],
        messages={"the operation": run["message"], "the machine": machine["message"]},
        cli=big_stack.cli("operations", "show", operation["id"]),
        ended=end_of(big_stack, f"machine/{run['nodeId']}"),
        status=machine["state"],
    )
    text = assert_told_the_same_everywhere(failure, failure_class, says)
    assert failure.status == "failed"
    assert isinstance(failure.ended, ApplicationError)
    assert (failure.ended.message, failure.ended.type) == (text, failure_class)


def test_a_create_that_is_overtaken_says_by_what(big_stack: DevStack) -> None:
    demo = Cluster(big_stack, SLEEP).make(pool_of(big_stack, f"local-{JOINED - 1}"))
    operation_id = demo.create(1).json()["operationId"]
    demo.running(operation_id, "work", 1)
    terminate = demo.terminate("gpu-1").json()["operationId"]
    demo.ended(terminate)
    (run,) = ended(big_stack, operation_id)["progress"]
    assert run["state"] == "superseded"
    shown_at = big_stack.http.get(f"/operations/{operation_id}").json()["progress"][0]["message"]
    printed = big_stack.cli("operations", "show", operation_id)
    failure = Shown(run["card"], {"fleet": run["message"], "cluster": shown_at}, printed, None, "")
    says = f"node gpu-1 has moved on: terminate by admin, operation {terminate}"
    assert_told_the_same_everywhere(failure, "superseded", says)


def test_an_array_that_is_full_says_so_in_the_operation(scene: Scene) -> None:
    answer = scene.stack.http.post(
        f"/clusters/{scene.cluster}/nodes/create", json={"sets": [{"count": 1, "nodearray": "status"}]}
    )
    said = answer.json()["sets"][0]
    assert said["added"] == 0
    operation = ended(scene.stack, answer.json()["operationId"])
    assert operation["card"]["failure_class"] == "capacity"
    assert said["message"] in operation["card"]["message"]
    assert operation["card"]["action"]
    assert operation["card"]["first_seen"]
    assert operation["message"] in scene.stack.cli("operations", "show", operation["id"])
