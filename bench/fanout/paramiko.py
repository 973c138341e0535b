"""The floor: bare paramiko, as somebody would write it for exactly this and nothing else.

One thread and one connection a machine, with TCP_NODELAY; ten commands, one after another. Nothing is
recorded, retried or resumed. It runs inside the benchmark's process, so its start and imports cost nothing,
where pyinfra and Ansible pay for theirs.
"""

import time
from collections.abc import Sequence

import paramiko as library

from bench.fanout.errors import BenchError, fail_on
from bench.fanout.recipe import RECIPE, undo
from bench.hosts import Host, connected, on_each, run
from bench.processor import Usage


def run_all(hosts: Sequence[Host], commands: Sequence[str]) -> dict[str, str]:
    """Runs the commands on every machine; what went wrong, by machine."""

    def work(host: Host) -> None:
        with connected(host) as client:
            for command in commands:
                status, said = run(client, command)
                if status != 0:
                    raise BenchError(f"{command} ended with {status}: {said}")

    return on_each(hosts, work)


class Paramiko:
    """See the module."""

    name = "paramiko"
    version: str = library.__version__

    def __init__(self) -> None:
        self._hosts: Sequence[Host] = ()

    def prepare(self, hosts: Sequence[Host]) -> None:
        self._hosts = hosts

    def apply(self) -> float:
        begun = time.monotonic()
        fail_on(self.name, run_all(self._hosts, [step.line for step in RECIPE]))
        return time.monotonic() - begun

    def check(self) -> None:
        pass  # `apply` has looked at every exit status

    def own_seconds(self, used: Usage) -> float:
        return used.benchmark

    def details(self) -> dict[str, float]:
        return {}

    def undo(self, hosts: Sequence[Host]) -> None:
        fail_on("undo", undo(hosts))
