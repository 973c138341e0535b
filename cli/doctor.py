"""`bringup doctor`: what this host has and lacks for `bringup dev`, and what to do about it."""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cli.dev.cluster import binaries
from cli.dev.errors import DevError
from cli.dev.ports import LOOPBACK, is_free
from cli.dev.process import tied
from cli.dev.temporal import binary
from cli.dev.tool import CHECKOUT

_OLDEST_PYTHON = (3, 11)
_PYTHON_VERSION = ".".join(map(str, _OLDEST_PYTHON))
_NEEDED_GIB = 2.0  # the servers' first files, and packages that a few machines install
_SANDBOX_SECONDS = 30.0
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PROGRAMS = {"setpriv": "util-linux"}
_MACHINE_PROGRAMS = {
    "sshd": "openssh-server",
    "ip": "iproute2",
    "cc": "gcc libc6-dev",
    "unshare": "util-linux",
}


@dataclass(frozen=True)
class Check:
    """One thing looked at: what was found, and what to do when that is not `ok`."""

    name: str
    ok: bool
    found: str
    advice: str = ""


@dataclass(frozen=True)
class Wanted:
    """What `bringup dev` is going to use. `ports` maps options to ports; 0 stands for any free one."""

    data_dir: Path
    ports: dict[str, int]
    machines: int


def examine(wanted: Wanted) -> list[Check]:
    """All checks, none of which changes anything that stays."""
    checks = [_system(), _python(), *_programs(wanted.machines > 0)]
    checks += [_server("PostgreSQL", binaries), _server("Temporal", binary)]
    checks += [*_ports(wanted.ports), _disk(wanted.data_dir)]
    if wanted.machines > 0:
        checks += [_root(), _cgroup2()]
        checks += _sandbox(wanted.data_dir) if all(check.ok for check in checks[-2:]) else []
    return checks


def as_json(checks: Sequence[Check]) -> str:
    """The checks as `{"ok": ..., "checks": [{"name", "ok", "found", "advice"}]}`."""
    return json.dumps(
        {"ok": all(check.ok for check in checks), "checks": list(map(asdict, checks))}, indent=2
    )


def show(checks: Sequence[Check], console: Console) -> None:
    """The checks as a table for people."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "check", "found", "what to do"):
        table.add_column(column, overflow="fold")
    for check in checks:
        mark = "[green]ok[/green]" if check.ok else "[bold red]missing[/bold red]"
        table.add_row(mark, check.name, escape(check.found), escape("" if check.ok else check.advice))
    console.print(table)


def _system() -> Check:
    found = f"{platform.system()} {platform.release()}"
    return Check("Linux", platform.system() == "Linux", found, "run bringup dev on a Linux host")


def _python() -> Check:
    found = f"{platform.python_version()} ({sys.executable})"
    return Check(
        "Python", sys.version_info >= _OLDEST_PYTHON, found, f"install Python {_PYTHON_VERSION} or newer"
    )


def _root() -> Check:
    found = "root" if os.geteuid() == 0 else f"user {os.geteuid()}"
    advice = "sandbox machines need root: run it with sudo, or without machines: bringup dev --machines 0"
    return Check("root", os.geteuid() == 0, found, advice)


def _programs(machines: bool) -> Iterator[Check]:
    for name, package in {**_PROGRAMS, **(_MACHINE_PROGRAMS if machines else {})}.items():
        found = shutil.which(name) or shutil.which(name, path=_SYSTEM_PATH)
        advice = f"run scripts/setup, or: apt-get install {package}"
        yield Check(name, found is not None, found or "not found", advice)


def _server(name: str, find: Callable[[], Path]) -> Check:
    try:
        return Check(name, True, str(find()))
    except DevError as error:
        return Check(name, False, "not found", str(error))


def _ports(ports: dict[str, int]) -> Iterator[Check]:
    for option, port in ports.items():
        free = port == 0 or is_free(port)
        found = "any free one" if port == 0 else f"{LOOPBACK}:{port} {'is free' if free else 'is in use'}"
        advice = f"end what listens there, or choose another port with {option} (0 picks a free one)"
        yield Check(f"port for {option}", free, found, advice)


def _disk(data_dir: Path) -> Check:
    free = shutil.disk_usage(_existing(data_dir)).free / 2**30
    advice = f"free some space, or put the data elsewhere with --data-dir: {_NEEDED_GIB:g} GiB are needed"
    return Check("disk", free >= _NEEDED_GIB, f"{free:.1f} GiB free for {data_dir}", advice)


def _cgroup2() -> Check:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    points = [fields[1] for fields in mounts if fields[2] == "cgroup2"]
    advice = "mount it: mount -t cgroup2 cgroup2 /sys/fs/cgroup"
    return Check("cgroup2", bool(points), points[0] if points else "not mounted", advice)


def _sandbox(data_dir: Path) -> Iterator[Check]:
    """What the provider itself misses, found by trying: the host may refuse what it seems to have."""
    command = [sys.executable, "-m", "providers.sandbox", str(data_dir / "sandbox"), "check"]
    try:
        result = subprocess.run(
            tied(command, signal.SIGKILL),
            capture_output=True,
            text=True,
            check=False,
            cwd=CHECKOUT,
            timeout=_SANDBOX_SECONDS,
        )
        lacking = [str(sentence) for sentence in json.loads(result.stdout)]
    except subprocess.TimeoutExpired:
        lacking = [f"the check did not finish within {_SANDBOX_SECONDS:g} s: {' '.join(command)}"]
    except ValueError:
        lacking = [f"the check failed: {result.stderr.strip()[-300:]}"]
    if not lacking:
        yield Check("machines", True, "namespaces, overlay, bridge and cgroups work")
    for sentence in lacking:
        yield Check("machines", False, "not possible here", sentence)


def _existing(path: Path) -> Path:
    path = path.resolve()
    while not path.exists():
        path = path.parent
    return path
