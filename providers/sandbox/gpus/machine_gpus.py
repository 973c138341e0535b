"""What GPUs a sandbox machine has, and how its disk says so."""

import uuid
from dataclasses import dataclass

#: The file that the simulated library reads; libnvidia_ml.c says what may stand in it.
CONFIGURATION = "/etc/simulated-gpus"
_DRIVER = "driver 550.54.15\nnvml 12.550.54.15\ncuda 12040\n"
_NAMESPACE = uuid.UUID("6a1f1f0e-2f0b-5a0c-9d5b-0f6b7f6f2c11")
#: Buses of an HGX board with eight GPUs; further GPUs follow after them.
_BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)
MOST = 64


@dataclass(frozen=True)
class GpuModel:
    """A model: the word that pools and machine types use for it, and what its driver says of it."""

    word: str
    name: str
    memory_bytes: int


MODEL = GpuModel("H100", "NVIDIA H100 80GB HBM3", 81_559 * 2**20)


def configuration(site: str, machine: str, count: int) -> str:
    """Return the file's text. Serials and UUIDs depend on site, machine and index only, as if soldered in."""
    return _DRIVER + "".join(_line(f"{site}\n{machine}\n{index}", index) for index in range(count))


def _line(identity: str, index: int) -> str:
    made = uuid.uuid5(_NAMESPACE, identity)
    domain, place = divmod(index, len(_BUSES))
    serial = 1_650_000_000_000 + made.int % 10**9
    return (
        f"gpu {index} GPU-{made} {domain:08X}:{_BUSES[place]:02X}:00.0 {serial} "
        f"{MODEL.memory_bytes} 0 {MODEL.name}\n"
    )
