"""The commands `bringup dev` and `bringup doctor`."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cli.output import OutputFormat

DEV_HELP = """Start everything here: PostgreSQL, Temporal with its Web UI, API, worker, machines.

The machines are a site `local` of sandboxes: each a real sshd in namespaces of its own, with its own
address, disk and host key. Everything listens on loopback only. Ctrl-C stops everything and leaves nothing
running; the data directory keeps all state, and the next start goes on from there.

The other commands, run in the same directory, find this API and its token by themselves.

Examples:

\b
  bringup dev                                 four machines, API on 8080, Web UI on 8233
  bringup dev --machines 40                   a larger site
  bringup dev --gpus 8                        machines with eight simulated GPUs each
  bringup dev --machines 0                    no machines; needs no root
  bringup dev --api-port 0 --temporal-port 0 --ui-port 0 --data-dir /tmp/b --ready-file /tmp/b.json
                                              beside another one, for a script that waits for the file
  bringup dev --reset                         forget all state and start afresh

The GPUs are simulated: a library in the driver's place answers what a driver would say, and nothing can be
computed on them. All machines of a data directory have as many, fixed when the first are made; another number
needs --reset or another --data-dir.

When it does not start, `bringup doctor` says what this host lacks.
"""

DOCTOR_HELP = """Look at this host and say what `bringup dev` would miss, and what to do about it.

Exit status 0 when nothing is missing, 1 otherwise. Changes nothing.

Examples:

\b
  bringup doctor
  bringup doctor --machines 0        what is needed without machines
  bringup doctor -o json             for a script
"""

DataDir = Annotated[Path, typer.Option(help="Where all state is kept.", file_okay=False)]
ApiPort = Annotated[int, typer.Option(min=0, max=65535, help="Port of the API; 0 picks a free one.")]
TemporalPort = Annotated[int, typer.Option(min=0, max=65535, help="Port of Temporal; 0 picks a free one.")]
UiPort = Annotated[int, typer.Option(min=0, max=65535, help="Port of the Web UI; 0 picks a free one.")]
MachineCount = Annotated[int, typer.Option("--machines", min=0, max=250, help="How many sandbox machines.")]

GpuCount = Annotated[
    int | None,
    typer.Option(
        "--gpus",
        min=0,
        max=64,
        help="Simulated GPUs in each machine. Default: as those of the data directory have, else 0.",
        show_default=False,
    ),
]


def dev(
    data_dir: DataDir = Path(".bringup"),
    api_port: ApiPort = 8080,
    temporal_port: TemporalPort = 7233,
    ui_port: UiPort = 8233,
    machines: MachineCount = 4,
    gpus: GpuCount = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="First end what is left and remove all state.")
    ] = False,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            help="Written when everything answers (JSON: api, ui, temporal, token, tenant, site, pids), kept "
            "current, and removed at the end.",
            dir_okay=False,
        ),
    ] = None,
) -> None:
    # Imported here: `bringup --help` and every other command stay quick without the servers' libraries.
    from cli.dev.errors import DevError
    from cli.dev.parts import Ports
    from cli.dev.screen import Screen
    from cli.dev.stack import Options, Stack
    from cli.doctor import Wanted, examine, show

    # Ports are looked at once the data directory is ours: a second start on it should say just that.
    if missing := [check for check in examine(Wanted(data_dir, {}, machines)) if not check.ok]:
        console = Console(stderr=True, highlight=False)
        console.print("[bold red]bringup dev cannot run here yet:[/bold red]\n")
        show(missing, console)
        raise typer.Exit(1)
    screen = Screen()
    options = Options(data_dir, Ports(api_port, temporal_port, ui_port), machines, gpus, reset, ready_file)
    try:
        asyncio.run(Stack(options, screen).run())
    except DevError as error:
        screen.error(error)
        raise typer.Exit(1) from None


def doctor(
    data_dir: DataDir = Path(".bringup"),
    api_port: ApiPort = 8080,
    temporal_port: TemporalPort = 7233,
    ui_port: UiPort = 8233,
    machines: MachineCount = 4,
    output: Annotated[
        OutputFormat, typer.Option("--output", "-o", help="table or json")
    ] = OutputFormat.TABLE,
) -> None:
    from cli.doctor import Wanted, as_json, examine, show

    ports = {"--api-port": api_port, "--temporal-port": temporal_port, "--ui-port": ui_port}
    checks = examine(Wanted(data_dir, ports, machines))
    if output is OutputFormat.JSON:
        typer.echo(as_json(checks))
    else:
        show(checks, Console(highlight=False))
    if not all(check.ok for check in checks):
        raise typer.Exit(1)
