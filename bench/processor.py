"""Processor time of everything that takes part in a benchmark, in seconds."""

import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.stack import BenchStack
from providers.sandbox.layout import SiteLayout

_QUIET_SHARE = 0.25  # of one core
_QUIET_SECONDS = 30.0


@dataclass(frozen=True)
class Usage:
    """`roles` are bringup's processes by role; `machines` what ran on the machines; `host` all of it."""

    roles: dict[str, float]
    machines: float
    benchmark: float
    host: float

    def __sub__(self, before: "Usage") -> "Usage":
        return Usage(
            {role: used - before.roles[role] for role, used in self.roles.items()},
            self.machines - before.machines,
            self.benchmark - before.benchmark,
            self.host - before.host,
        )


class Meter:
    """Reads what was used so far. The difference of two readings is what was used between them."""

    def __init__(self, stack: BenchStack) -> None:
        self._processes = {role: psutil.Process(pid) for role, pid in stack.ready["pids"].items()}
        self._machines = SiteLayout((stack.data_dir / "sandbox").resolve()).cgroup

    def usage(self) -> Usage:
        """What was used so far; psutil.NoSuchProcess when a process of bringup has died meanwhile."""
        return Usage(
            {role: _used_by_tree(process) for role, process in self._processes.items()},
            used_in_group(self._machines),
            time.process_time(),
            _used_on_host(),
        )

    def settle(self) -> None:
        """Waits until bringup and the machines are at rest, so that no tool pays for the work of another."""
        until = time.monotonic() + _QUIET_SECONDS
        while time.monotonic() < until:
            before = self.usage()
            time.sleep(1.0)  # the interval over which rest is measured
            used = self.usage() - before
            if sum(used.roles.values()) + used.machines < _QUIET_SHARE:
                return


def used_in_group(group: Path) -> float:
    """What the processes of a cgroup and those below it have used, the dead among them included."""
    lines = (line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return next(int(value) for name, value in lines if name == "usage_usec") / 1e6


def _used_by_tree(process: psutil.Process) -> float:
    """What a process and its descendants used: the living by themselves, the dead through their parents."""
    used = 0.0
    for each in [process, *process.children(recursive=True)]:
        try:
            times = each.cpu_times()
        except psutil.NoSuchProcess:
            if each is process:
                raise
            continue
        used += times.user + times.system + times.children_user + times.children_system
    return used


def _used_on_host() -> float:
    times = psutil.cpu_times()
    busy = times.user + times.nice + times.system + times.irq + times.softirq
    return float(busy)
