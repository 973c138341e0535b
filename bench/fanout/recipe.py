"""The recipe: ten steps such as recipes for machines are full of, each with its check.

Every step looks whether it is needed, applies itself, and looks again. bringup has words for that (`check`
and `run`); the others get the same three as one line of shell, which is the cheapest form for them: one
command on the machine, where bringup starts three. Everything lies below one folder, so that taking it back
is one command too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.hosts import Host, connected, on_each, run

ROOT = "/srv/bench-fanout"
UNDO = f"rm -rf {ROOT}"


@dataclass(frozen=True)
class Step:
    """Shell text for /bin/sh; `check` exits 0 when nothing is to be done."""

    name: str
    check: str
    apply: str

    @property
    def line(self) -> str:
        """Check, apply and verify in one line of shell."""
        return f"{{ {self.check}; }} || {{ {self.apply} && {self.check}; }}"


def _file(name: str, path: str, content: str) -> Step:
    place = f"{ROOT}/{path}"
    return Step(name, f"grep -qxF '{content}' {place} 2>/dev/null", f"printf '%s\\n' '{content}' > {place}")


RECIPE = (
    Step(
        "make-folders",
        f"test -d {ROOT}/etc -a -d {ROOT}/bin",
        f"mkdir -p {ROOT}/etc {ROOT}/bin && chmod 0750 {ROOT}",
    ),
    _file("raise-limits", "etc/limits.conf", "* hard memlock unlimited"),
    _file("set-kernel-values", "etc/sysctl.conf", "vm.swappiness = 10"),
    _file("block-module", "etc/modprobe.conf", "blacklist nouveau"),
    _file("bound-logs", "etc/journald.conf", "SystemMaxUse=512M"),
    _file("greet", "etc/motd", "brought up by a benchmark"),
    Step(
        "install-script",
        f"test -x {ROOT}/bin/health",
        f"printf '#!/bin/sh\\nexit 0\\n' > {ROOT}/bin/health && chmod 0755 {ROOT}/bin/health",
    ),
    Step("run-script", f"test -e {ROOT}/healthy", f"{ROOT}/bin/health && : > {ROOT}/healthy"),
    Step("point-current", f"test -L {ROOT}/current", f"ln -s etc {ROOT}/current"),
    Step(
        "note-kernel",
        f'test "$(cat {ROOT}/kernel 2>/dev/null)" = "$(uname -r)"',
        f"uname -r > {ROOT}/kernel",
    ),
)
NAMES = tuple(step.name for step in RECIPE)


def profile_steps() -> list[dict[str, Any]]:
    """The recipe as a profile has it."""
    return [
        {"name": step.name, "uses": "command", "with": {"run": step.apply, "check": step.check}}
        for step in RECIPE
    ]


def verify(hosts: Sequence[Host], *, applied: bool) -> dict[str, str]:
    """Looks at every machine whether all ten effects are there, or none; what is wrong, by machine."""
    probe = "\n".join(f"if {{ {step.check}; }}; then echo {step.name}; fi" for step in RECIPE)
    expected = list(NAMES) if applied else []

    def look(host: Host) -> None:
        with connected(host) as client:
            _, said = run(client, probe)
        if said.split() != expected:
            wrong = sorted(set(said.split()) ^ set(expected))
            raise AssertionError(f"{'not in effect' if applied else 'still in effect'}: {', '.join(wrong)}")

    return on_each(hosts, look)


def undo(hosts: Sequence[Host]) -> dict[str, str]:
    """Takes everything back over SSH; what went wrong, by machine."""

    def take_back(host: Host) -> None:
        with connected(host) as client:
            status, said = run(client, UNDO)
        if status != 0:
            raise AssertionError(f"undo ended with {status}: {said}")

    return on_each(hosts, take_back)
