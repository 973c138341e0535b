"""The `bringup` command. Command groups live in `cli/commands/` and are added to `app` here."""

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer

from cli.commands import lists, machines, nodes, operations, pools, reservations
from cli.commands.apply import APPLY_HELP, apply
from cli.commands.init import INIT_HELP, init
from cli.commands.logs import LOGS_HELP, logs
from cli.commands.tenants import tenants, tokens
from cli.dev.command import DEV_HELP, DOCTOR_HELP, dev, doctor
from cli.errors import CliError
from cli.output import error_line

APP_HELP = """bringup brings GPU machines up and keeps them right.

\b
Start here:
  bringup doctor      what this host lacks, if anything
  bringup dev         everything on this machine, with sandbox machines to try it on
  bringup apply -f examples/demo
  bringup nodes create demo --array gpu --count 3 --wait

Every command has its own --help with examples. Exit status: 0 done, 1 failed, 2 wrong or refused,
3 partially succeeded, 4 timed out waiting, 5 no API answers, 130 Ctrl-C.
"""

app = typer.Typer(help=APP_HELP, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bringup {version('bringup')}")
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Options of `bringup` itself."""


app.command("dev", help=DEV_HELP)(dev)
app.command("doctor", help=DOCTOR_HELP)(doctor)
app.command("init", help=INIT_HELP)(init)
app.command("apply", help=APPLY_HELP)(apply)
app.add_typer(nodes.app, name="nodes")
app.add_typer(operations.app, name="operations")
app.command("logs", help=LOGS_HELP)(logs)
app.add_typer(lists.clusters, name="clusters")
app.add_typer(pools.app, name="pools")
app.add_typer(reservations.app, name="reservations")
app.add_typer(lists.profiles, name="profiles")
app.add_typer(machines.app, name="machines")
app.add_typer(tenants, name="tenants")
app.add_typer(tokens, name="tokens")


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point that the package installs as `bringup`; `arguments` default to the command line's."""
    try:
        app(arguments)
    except CliError as error:
        error_line(str(error))
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
