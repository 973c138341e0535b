"""Peers that are commands of their own: a run lives in a cgroup, which counts it and ends it for certain."""

import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from bench.fanout.errors import BenchError, fail_on
from bench.fanout.recipe import undo
from bench.hosts import Host
from bench.processor import Usage, used_in_group
from cli.dev.process import tied
from providers.sandbox import cgroups

_BASE_SECONDS = 120.0
_SECONDS_PER_MACHINE = 15.0
_LAST_LINES = 25
_GROUP = "bringup-bench-"
# The shell moves itself into the group and becomes the command: all that it starts is in there too, also what
# detaches itself, such as the connection masters of OpenSSH.
_ENTER = 'echo $$ > "$0" && exec "$@"'


class CommandPeer(ABC):
    """A peer that writes files to `folder` and is started as a command there."""

    name: str
    version: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir()
        self._hosts: Sequence[Host] = ()
        self._seconds = 0.0

    @abstractmethod
    def write(self, hosts: Sequence[Host]) -> None:
        """Writes inventory, recipe and settings for these machines."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command, given what `write` wrote."""

    def environment(self) -> Mapping[str, str]:
        """Variables for the command, beside PATH, a home of its own, and UTF-8."""
        return {}

    def prepare(self, hosts: Sequence[Host]) -> None:
        self._hosts = hosts
        self.write(hosts)

    def apply(self) -> float:
        root = cgroups.cgroup2_root()
        if root is None:
            raise BenchError("this host has no cgroup2 tree, by which processes are counted")
        _end_leftovers(root)
        group = root / f"{_GROUP}{os.getpid()}"
        group.mkdir()
        try:
            begun = time.monotonic()
            self._run(group)
            wall = time.monotonic() - begun
            self._seconds = used_in_group(group)
        finally:
            cgroups.end(group)
        return wall

    def _run(self, group: Path) -> None:
        limit = _BASE_SECONDS + _SECONDS_PER_MACHINE * len(self._hosts)
        log = self.folder / "output"
        settings = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LC_ALL": "C.UTF-8"}
        with log.open("wb") as output:
            process = subprocess.Popen(
                tied(["/bin/sh", "-c", _ENTER, str(group / "cgroup.procs"), *self.command()], signal.SIGKILL),
                cwd=self.folder,
                env={**settings, **self.environment()},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = process.wait(timeout=limit)
            except subprocess.TimeoutExpired as error:
                raise BenchError(f"{self.name} did not end within {limit:.0f} s{_tail(log)}") from error
            finally:
                if process.returncode is None:
                    process.kill()
                    process.wait()
        if status != 0:
            raise BenchError(f"{self.name} ended with status {status}{_tail(log)}")

    def check(self) -> None:
        """Nothing is left to do: `apply` has looked at every exit status."""
        return

    def own_seconds(self, used: Usage) -> float:
        return self._seconds

    def details(self) -> dict[str, float]:
        return {}

    def undo(self, hosts: Sequence[Host]) -> None:
        fail_on("undo", undo(hosts))


def _end_leftovers(root: Path) -> None:
    """Ends what a benchmark that was killed has left, such as connections that persist."""
    for group in root.glob(f"{_GROUP}*"):
        if not psutil.pid_exists(int(group.name.removeprefix(_GROUP))):
            cgroups.end(group)


def _tail(log: Path) -> str:
    return "".join(f"\n  {line}" for line in log.read_text(errors="replace").splitlines()[-_LAST_LINES:])
