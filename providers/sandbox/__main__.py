"""``python -m providers.sandbox DIR COMMAND``: sandbox machines from the command line, answers as JSON."""

import argparse
import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from providers.base import ProviderError
from providers.sandbox.checks import missing
from providers.sandbox.gpus.machine_gpus import MODEL
from providers.sandbox.machine import SandboxMachine
from providers.sandbox.site import SandboxSite
from providers.sandbox.waiting import wait_for_banner

_WORKERS = 16
_BANNER_SECONDS = 30.0


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status. What fails is one line on standard error."""
    options = _parser().parse_args(arguments)
    try:
        answer = options.run(SandboxSite(options.directory), options)
    except ProviderError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(answer, indent=2) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m providers.sandbox", description=__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR", help="the site's directory")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(
        name: str, run: Callable[..., object], text: str, *, machine: bool = False
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text)
        command.set_defaults(run=run)
        if machine:
            command.add_argument("name", metavar="NAME")
        return command

    up = add("up", _up, "create missing machines, switch all on, wait until each answers SSH")
    up.add_argument("--machines", type=int, required=True, metavar="N")
    up.add_argument(
        "--gpus",
        type=int,
        metavar="N",
        help="simulated GPUs each; as the machines have that there are, else 0",
    )
    up.add_argument("--names-from", default="local", metavar="PREFIX", help="names are PREFIX-1 to PREFIX-N")
    add("down", _down, "switch all off, remove bridge and cgroups; the disks stay")
    add("list", _list, "list the machines")
    add("destroy", _destroy, "as down, then delete the machines with their disks")
    add("power-on", _power_on, "switch a machine on", machine=True)
    add("power-off", _power_off, "switch a machine off, hard", machine=True)
    add("reboot", _reboot, "reset a machine, hard", machine=True)
    add("check", _check, "list what this host lacks, as sentences")
    return parser


def _up(site: SandboxSite, options: argparse.Namespace) -> object:
    site.open()
    known = {machine.name: machine.gpus for machine in site.machines()}
    gpus = _gpus(site, set(known.values()), options.gpus)
    wanted = [f"{options.names_from}-{number}" for number in range(1, options.machines + 1)]
    for name in wanted:
        if name not in known:
            site.create(name, gpus)
    with ThreadPoolExecutor(_WORKERS) as pool:
        list(pool.map(lambda machine: _start(site, machine), site.machines()))
    return _list(site, options)


def _gpus(site: SandboxSite, present: set[int], asked: int | None) -> int:
    """All machines of a site have as many; a machine never gets others, as no machine does by itself."""
    wrong = present - {asked}
    if asked is not None and wrong:
        text = f"its machines have {', '.join(map(str, sorted(wrong)))} GPUs each, not {asked}"
        raise ProviderError(
            f"sandbox site {site.directory}",
            f"{text}: use another directory, or make the machines anew (bringup dev: --data-dir, --reset)",
        )
    return max(present, default=0) if asked is None else asked


def _start(site: SandboxSite, machine: SandboxMachine) -> None:
    site.power_on(machine.name)
    if not wait_for_banner(machine.address, machine.port, _BANNER_SECONDS):
        text = f"is on, but does not answer SSH at {machine.address}: {site.log_tail(machine.name)}"
        raise ProviderError(machine.bmc, text)


def _down(site: SandboxSite, options: argparse.Namespace) -> object:
    site.close()
    return _list(site, options)


def _list(site: SandboxSite, options: argparse.Namespace) -> object:
    return {"machines": [_record(site, machine) for machine in site.machines()]}


def _destroy(site: SandboxSite, options: argparse.Namespace) -> object:
    for machine in site.machines():
        site.destroy(machine.name)
    site.close()
    return {"machines": []}


def _power_on(site: SandboxSite, options: argparse.Namespace) -> object:
    site.open()
    _start(site, site.machine(options.name))
    return _record(site, site.machine(options.name))


def _power_off(site: SandboxSite, options: argparse.Namespace) -> object:
    site.power_off(options.name)
    return _record(site, site.machine(options.name))


def _reboot(site: SandboxSite, options: argparse.Namespace) -> object:
    site.open()
    site.reboot(options.name)
    return _power_on(site, options)


def _check(site: SandboxSite, options: argparse.Namespace) -> object:
    return missing(options.directory)


def _record(site: SandboxSite, machine: SandboxMachine) -> dict[str, object]:
    return {
        "name": machine.name,
        "bmc": machine.bmc,
        "address": machine.address,
        "port": machine.port,
        "user": machine.user,
        "gpus": machine.gpus,
        "gpuModel": MODEL.word if machine.gpus else None,
        "hostKey": machine.host_key,
        "keyFile": str(machine.key_file),
        "bootId": machine.boot_id,
        "power": str(site.power_state(machine.name)),
    }


if __name__ == "__main__":
    sys.exit(main())
