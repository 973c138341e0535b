"""`bringup machines`: GPUs in the list, and each of them in the view of one machine."""

from typing import Any

from tests.cli.conftest import Cli
from tests.database.world import World

GPU: dict[str, Any] = {
    "index": 0,
    "uuid": "GPU-e28044c3-deb7-55b0-95b7-cb485114b021",
    "pciId": "00000000:1B:00.0",
    "model": "NVIDIA H100 80GB HBM3",
    "memoryBytes": 81_559 * 2**20,
    "mig": {"enabled": False, "pending": False},
    "serial": None,
    "ecc": True,
}
HARDWARE: dict[str, Any] = {
    "driver": {"version": "550.54.15", "nvml": "12.550.54.15", "cuda": None},
    "gpus": [GPU, GPU | {"index": 1, "model": "NVIDIA \x1b[31mA100", "mig": None}],
    "problem": {"class": "gpu-lost", "message": "GPU 2 has fallen off the bus"},
    "readAt": "2026-01-02T03:04:05+00:00",
}


async def test_the_list_counts_gpus_by_model(cli: Cli, world: World) -> None:
    await world.machines(1, name="with", hardware=HARDWARE | {"gpus": [GPU] * 8})
    await world.machines(1, name="without", hardware={"gpus": [], "problem": HARDWARE["problem"]})
    await world.machines(1, "cpu", name="plain")
    lines = (await cli.run("machines", "list")).text.splitlines()
    assert "GPUs" in lines[0]
    by_name = {line.split()[0]: line for line in lines[1:]}
    assert "8 × NVIDIA H100 80GB HBM3" in by_name["with"]
    assert "gpu-lost" in by_name["without"]
    assert by_name["plain"].split()[:4] == ["plain", "ready", "no", "-"]


async def test_one_machine_is_shown_with_driver_and_each_gpu(cli: Cli, world: World) -> None:
    (machine,) = await world.machines(1, name="one", hardware=HARDWARE)
    for called in ("one", machine):
        text = (await cli.run("machines", "show", called)).text
        assert "550.54.15, NVML 12.550.54.15" in text
        assert "gpu-lost: GPU 2 has fallen off the bus" in text
        for part in (GPU["uuid"], GPU["pciId"], "79.6 GiB", "off"):
            assert part in text
        assert "\x1b[31m" not in text
    shown = (await cli.run("machines", "show", "one", "-o", "json")).json()
    assert shown["hardware"] == HARDWARE


async def test_a_machine_that_is_not_there_or_not_the_only_one_is_said_so(cli: Cli, world: World) -> None:
    await world.machines(2, name="twin")
    for name, said in (("nobody", "there is no machine nobody"), ("twin", "name one by its id: node_")):
        done = await cli.run("machines", "show", name)
        assert done.status != 0
        assert said in done.errors
