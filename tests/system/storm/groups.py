"""The steps that are at work on the machines, as this host's kernel tells of them."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from providers.sandbox import cgroups
from providers.sandbox.layout import SiteLayout

_BASE = "up/var/lib/bringup/runs"


@dataclass(frozen=True)
class StepGroup:
    """The processes of one attempt of one step."""

    key: str
    machine: str
    pids: list[int]

    @property
    def run_id(self) -> str:
        """The run whose step it is."""
        return self.key.split(".")[0]


def step_groups(site: SiteLayout) -> Iterator[StepGroup]:
    """Every step of which a process is left."""
    for group in site.cgroup.glob("*/**/s-*"):
        with suppress(OSError):
            if pids := cgroups.processes(group):
                yield StepGroup(group.name[2:], group.relative_to(site.cgroup).parts[0], pids)


def processes_of(site: SiteLayout, machine: str, name: str) -> list[int]:
    """A machine's own processes whose name begins so, never a step's; what this host says, not the API."""
    found = []
    for pid in cgroups.processes(site.cgroup / machine):
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().startswith(name):
                found.append(pid)
    return found


def runner_of(site: SiteLayout, group: StepGroup) -> int | None:
    """The supervisor's process that runs a step, as this host numbers it."""
    story = site.machines / group.machine / _BASE / f"{group.key}_st"
    with suppress(OSError):
        inner = re.findall(r"^runner (\d+) ", story.read_text(), re.MULTILINE)
        for pid in cgroups.processes(site.cgroup / group.machine):
            with suppress(OSError):
                numbers = re.search(r"^NSpid:\s+(.*)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
                if inner and numbers and numbers[1].split()[-1] == inner[-1]:
                    return pid
    return None


def command_of(pid: int) -> str:
    """A process's command line; empty when it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""
