"""`bringup machines`: what cluster nodes are placed on, and what GPUs it has."""

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from cli.commands.options import Api, Output, Tenant, Token, connect
from cli.errors import CliError
from cli.output import OutputFormat, console, moment, pick, print_json, show_table, table

LIST_HELP = """List machines: what cluster nodes are placed on.

GPUs are those that the machine's driver saw when it joined or was cleaned last.

Examples:

\b
  bringup machines list
  bringup machines list --state failed
  bringup machines list -o json | jq -r '.[] | select(.booked | not) | .name'
"""
SHOW_HELP = """Show one machine: its state, its driver, and each GPU with its UUID, PCI id and memory.

Examples:

\b
  bringup machines show local-1
  bringup machines show local-1 -o json | jq -r '.hardware.gpus[].uuid'
"""

app = typer.Typer(help="Machines of the fleet: list, show.", no_args_is_help=True)


@app.command("list", help=LIST_HELP)
def list_machines(
    site: Annotated[str | None, typer.Option(help="Only those of the site with this id.")] = None,
    pool: Annotated[str | None, typer.Option(help="Only those of the pool with this id.")] = None,
    state: Annotated[str | None, typer.Option(help="Only those in this state.")] = None,
    output: Output = OutputFormat.TABLE,
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    given = {"siteId": site, "poolId": pool, "state": state}
    with connect(api, token, tenant) as client:
        found = client.fleet_list("nodes/list", {key: value for key, value in given.items() if value})
    if output is OutputFormat.JSON:
        print_json(found)
        return
    columns = ("name", "state", "booked", "GPUs", "address", "machine type", "pool", "message", "id")
    rows = [
        [
            *pick(one, "name", "state", "booked"),
            gpus_text(one),
            *pick(one, "address", "machineType", "poolId", "message", "id"),
        ]
        for one in found
    ]
    show_table(columns, rows, "there are no machines")


@app.command("show", help=SHOW_HELP)
def show(
    machine: Annotated[str, typer.Argument(metavar="NAME", help="The machine's name or id.")],
    output: Output = OutputFormat.TABLE,
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    with connect(api, token, tenant) as client:
        found = [one for one in client.fleet_list("nodes/list") if machine in (one["id"], one["name"])]
    if not found:
        raise CliError(f"there is no machine {machine}: bringup machines list")
    if len(found) > 1:
        ids = ", ".join(str(one["id"]) for one in found)
        raise CliError(f"several machines are called {machine}; name one by its id: {ids}")
    if output is OutputFormat.JSON:
        print_json(found[0])
        return
    console().print(table(("", ""), _about(found[0])))
    if gpus := _hardware(found[0]).get("gpus"):
        console().print()
        console().print(table(_GPU_COLUMNS, [_gpu_row(gpu) for gpu in gpus]))


def gpus_text(machine: Mapping[str, Any]) -> str:
    """The GPUs in a few words, such as `8 × NVIDIA H100 80GB HBM3`; the problem's class without any."""
    hardware = _hardware(machine)
    counted = Counter(str(gpu["model"]) for gpu in hardware.get("gpus") or [])
    if not counted:
        return str((hardware.get("problem") or {}).get("class") or "")
    return ", ".join(f"{count} × {model}" for model, count in counted.items())


def _about(machine: Mapping[str, Any]) -> list[list[object]]:
    hardware = _hardware(machine)
    driver = hardware.get("driver") or {}
    versions = [
        f"{word} {driver[key]}" for key, word in (("nvml", "NVML"), ("cuda", "CUDA")) if driver.get(key)
    ]
    problem = hardware.get("problem") or {}
    rows: list[tuple[str, object]] = [
        ("name", machine["name"]),
        ("id", machine["id"]),
        ("state", machine["state"]),
        ("booked", machine["booked"]),
        ("address", f"{machine['address']}:{machine['port']}"),
        ("machine type", machine["machineType"]),
        ("pool", machine.get("poolId")),
        ("message", machine.get("message")),
        ("GPUs", gpus_text(machine)),
        ("driver", ", ".join([str(driver["version"]), *versions]) if driver else None),
        ("GPU problem", f"{problem['class']}: {problem['message']}" if problem else None),
        ("GPUs read", moment(hardware.get("readAt"))),
    ]
    return [list(row) for row in rows]


_GPU_COLUMNS = ("GPU", "model", "memory", "PCI id", "UUID", "serial", "MIG", "ECC")


def _gpu_row(gpu: Mapping[str, Any]) -> list[object]:
    mig = gpu.get("mig")
    return [
        *pick(gpu, "index", "model"),
        f"{gpu['memoryBytes'] / 2**30:.1f} GiB",
        *pick(gpu, "pciId", "uuid", "serial"),
        None if mig is None else "on" if mig["enabled"] else "off",
        gpu.get("ecc"),
    ]


def _hardware(machine: Mapping[str, Any]) -> Mapping[str, Any]:
    """What was read of its GPUs; empty for a machine that has none, or was not asked yet."""
    return machine.get("hardware") or {}
