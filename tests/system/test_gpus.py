"""`bringup dev --gpus 8`: machines with GPUs, through the front door. All parts real but the GPUs."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.dev_stack import ROOT, Cluster, DevStack, eventually
from tests.system.conftest import counted

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def gpu_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevStack]:
    """Two machines of eight GPUs each."""
    if os.geteuid() != 0:
        pytest.skip("machines need root")
    started = DevStack(Path(tmp_path_factory.mktemp("gpus")) / "data", machines=2, arguments=("--gpus=8",))
    try:
        yield started.start()
    finally:
        started.close()


def machines(stack: DevStack) -> dict[str, dict[str, Any]]:
    """All machines by name, as the fleet API shows them."""
    return {one["name"]: one for one in stack.fleet("nodes/list", limit=500)["items"]}


def gpu_step(name: str, **expected: object) -> dict[str, Any]:
    """A step that looks at the GPUs."""
    return {"name": name, "uses": "nvml.facts", "with": expected}


def joined(stack: DevStack, name: str, break_it: str) -> dict[str, Any]:
    """A further machine of eight GPUs as it is once it has joined, broken beforehand."""
    site = str(stack.data_dir / "sandbox")
    number = name.rpartition("-")[2]
    command = [sys.executable, "-m", "providers.sandbox", site, "up", "--machines", number]
    done = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True, timeout=60)
    (made,) = [one for one in json.loads(done.stdout)["machines"] if one["name"] == name]
    stack.machine_ssh(made["address"], break_it)
    stack.fleet(
        "nodes/join",
        siteId=stack.ready["site"],
        name=name,
        address=made["address"],
        keySecret="secret://file/ssh/local",
        machineType="sandbox-h100-8",
        bmc={"address": made["bmc"]},
    )
    passing = ("joining", "verifying")
    eventually(f"{name} has settled", lambda: machines(stack)[name]["state"] not in passing)
    return machines(stack)[name]


def test_machines_show_their_gpus_and_a_create_books_them(gpu_stack: DevStack) -> None:
    found = machines(gpu_stack)
    assert {one["state"] for one in found.values()} == {"ready"}
    gpus = [gpu for one in found.values() for gpu in one["hardware"]["gpus"]]
    assert len({gpu["uuid"] for gpu in gpus}) == 16
    assert {gpu["model"] for gpu in gpus} == {"NVIDIA H100 80GB HBM3"}
    assert {one["hardware"]["driver"]["version"] for one in found.values()} == {"550.54.15"}
    assert gpu_stack.cli("machines", "list").count("8 × NVIDIA H100 80GB HBM3") == 2
    shown = gpu_stack.cli("machines", "show", "local-2")
    assert all(gpu["uuid"] in shown for gpu in found["local-2"]["hardware"]["gpus"])

    made = gpu_stack.fleet(
        "pools/create", siteId=gpu_stack.ready["site"], gpuModel="H100", **{"class": "metal-host"}
    )
    pool = made["pool"]["id"]
    gpu_stack.fleet("nodes/assignPool", poolId=pool, nodeIds=[one["id"] for one in found.values()])
    demo = Cluster(gpu_stack, [gpu_step("gpus", gpus=8, driver="550"), counted("one")]).make(pool)
    operation = demo.ended(demo.create(1).json()["operationId"])
    assert operation["state"] == "succeeded"
    (step,) = [one for one in demo.steps_of(operation["id"]) if one["step"] == "gpus"]
    log = gpu_stack.fleet("operations/logs", stepRunId=step["stepRunId"], stream="stdout", offset=0)["data"]
    assert log.startswith("driver 550.54.15, NVML 12.550.54.15, CUDA 12.4\nGPU 0  NVIDIA H100 80GB HBM3")
    assert step["outcome"] == "no-change", "asking changes nothing"
    assert len(step["outputs"]["gpus"]) == 8
    (node,) = demo.nodes()
    read = gpu_stack.fleet("nodes/get", nodeId=node["InstanceId"])["node"]["hardware"]["readAt"]
    joined_at = next(one for one in found.values() if one["id"] == node["InstanceId"])["hardware"]["readAt"]
    assert read > joined_at, "what the step read is the machine's hardware now"
    (quota,) = gpu_stack.fleet("pools/get", poolId=pool)["pool"]["quotas"]
    assert (quota["resource"], quota["inUse"]) == ("gpu", 8)

    before = gpu_stack.fleet("nodes/get", nodeId=node["InstanceId"])["node"]["hardware"]
    demo.clear()
    wrong = Cluster(gpu_stack, [gpu_step("count", gpus=4)]).make(pool)
    assert wrong.ended(wrong.create(1).json()["operationId"])["state"] == "failed"
    (failed,) = wrong.nodes()
    said = "health: step count: 4 GPUs are expected, the driver sees 8"
    assert failed["StatusMessage"].startswith(said)
    assert failed["StatusMessage"].count("4 GPUs are expected") == 1
    wrong.clear()
    after = gpu_stack.fleet("nodes/get", nodeId=node["InstanceId"])["node"]["hardware"]
    assert after["readAt"] > before["readAt"]
    assert after["gpus"] == before["gpus"]


def test_a_machine_without_a_driver_joins_and_says_so(gpu_stack: DevStack) -> None:
    machine = joined(gpu_stack, "local-3", "rm /usr/lib/*/libnvidia-ml.so.1")
    assert machine["state"] == "ready"
    assert not machine["mismatched"]
    assert machine["message"].startswith("nvml-absent: libnvidia-ml.so.1")
    assert machine["hardware"]["problem"]["class"] == "nvml-absent"


def test_a_machine_with_a_lost_gpu_fails_with_its_card_and_shows_the_others(gpu_stack: DevStack) -> None:
    machine = joined(gpu_stack, "local-4", "echo lost 3 >> /etc/simulated-gpus")
    assert machine["state"] == "failed"
    assert "gpu-lost: GPU 3 has fallen off the bus" in machine["message"]
    assert "power cycle" in machine["message"]
    assert [gpu["index"] for gpu in machine["hardware"]["gpus"]] == [0, 1, 2, 4, 5, 6, 7]


def test_a_machine_with_fewer_gpus_than_its_type_is_never_booked(gpu_stack: DevStack) -> None:
    machine = joined(gpu_stack, "local-5", "sed -i '/^gpu 7/d' /etc/simulated-gpus")
    assert machine["state"] == "ready"
    assert machine["mismatched"]
    assert "its machine type has 8 GPUs, its driver sees 7" in machine["message"]


def test_another_number_of_gpus_on_the_same_data_directory_is_refused(gpu_stack: DevStack) -> None:
    assert gpu_stack.stop() == 0
    command = [sys.executable, "-m", "cli.main", "dev", f"--data-dir={gpu_stack.data_dir}", "--gpus=4"]
    ports = ["--api-port=0", "--temporal-port=0", "--ui-port=0"]
    done = subprocess.run(
        [*command, *ports], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "its machines have 8 GPUs each, not 4" in " ".join((done.stdout + done.stderr).split())
