"""One sandbox machine, as callers see it."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class SandboxMachine:
    """A machine of a site. ``boot_id`` is that of the latest boot, None before the first."""

    name: str
    address: str
    host_key: str
    key_file: Path
    boot_id: str | None
    port: int = 22
    user: str = "root"
    #: How many simulated GPUs its disk has.
    gpus: int = 0

    @property
    def bmc(self) -> str:
        """The machine's management address."""
        return f"sandbox://{self.name}"
