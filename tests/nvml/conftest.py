"""A sandbox machine with eight simulated GPUs that is asked over real SSH with the real nvidia-ml-py."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from activities.nvml.client import Reading, read_facts
from activities.ssh.connection import Connection
from activities.ssh.target import SshTarget
from domain.failures import FailureClass
from providers.sandbox import SandboxMachine, SandboxSite
from providers.sandbox.gpus import library
from providers.sandbox.gpus.machine_gpus import CONFIGURATION
from providers.sandbox.waiting import wait_for_banner

GPUS = 8
LIBRARY = f"{library.folder()}/{library.NAME}"


@dataclass
class GpuMachine:
    """One machine, how to reach it, and what may be broken on it."""

    site: SandboxSite
    name: str
    connection: Connection
    _keys: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def shell(self, text: str) -> str:
        """Runs shell text that must succeed."""
        done = self.connection.exec(text)
        assert done.exit_status == 0, done.stderr.decode()
        return done.stdout.decode()

    def configure(self, *lines: str) -> None:
        """Adds lines to what the simulated library reads."""
        for line in lines:
            self.shell(f"echo '{line}' >> {CONFIGURATION}")

    def library(self, without: Sequence[str] = ()) -> None:
        """Replaces the library by one that lacks some functions."""
        built = library.build(self.site.directory / "gpus", without)
        done = self.connection.exec(f"cat > {LIBRARY}.new && mv {LIBRARY}.new {LIBRARY}", built.read_bytes())
        assert done.exit_status == 0

    def read(self, call_seconds: float = 20.0, timeout_seconds: int = 60) -> Reading:
        """Asks the machine's driver."""
        reading = read_facts(
            self.connection,
            python3="/usr/bin/python3",
            key=f"test.{next(self._keys)}",
            token=1,
            call_seconds=call_seconds,
            timeout_seconds=timeout_seconds,
        )
        assert reading is not None
        return reading

    def failure(self, call_seconds: float = 20.0, timeout_seconds: int = 60) -> tuple[FailureClass, str]:
        """How the asking fails, which it must."""
        failed = self.read(call_seconds, timeout_seconds).failure
        assert failed is not None
        return failed

    def probes(self) -> list[str]:
        """The processes of probes that are there, by their command lines."""
        lines = self.shell("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; echo")
        return [line for line in lines.splitlines() if "python3 -I" in line]


def connect(machine: SandboxMachine, user: str = "root") -> Connection:
    """Logs in on a machine that is on."""
    assert wait_for_banner(machine.address, machine.port, 20)
    key = machine.key_file.read_text()
    return Connection.open(SshTarget(machine.address, machine.port, user, key, machine.host_key))


@pytest.fixture(scope="session")
def gpu_site() -> Iterator[SandboxSite]:
    """A site of its own, closed and removed at the end."""
    if os.geteuid() != 0:
        pytest.skip("sandbox machines need root")
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="bringup-nvml-") as folder:
        site = SandboxSite(Path(folder) / "site")
        site.open()
        try:
            yield site
        finally:
            site.close()


@pytest.fixture(scope="session")
def running(gpu_site: SandboxSite) -> Iterator[GpuMachine]:
    """The machine, for all tests."""
    gpu_site.create("gpus", GPUS)
    gpu_site.power_on("gpus")
    connection = connect(gpu_site.machine("gpus"))
    yield GpuMachine(gpu_site, "gpus", connection)
    connection.close()


@pytest.fixture
def machine(running: GpuMachine) -> Iterator[GpuMachine]:
    """The machine as it was made; what a test breaks is whole again afterwards."""
    kept = running.shell(f"cat {CONFIGURATION}")
    yield running
    assert running.connection.exec(f"cat > {CONFIGURATION}", kept.encode()).exit_status == 0
    running.library()
