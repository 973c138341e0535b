"""The `bringup` command. Command groups live in `cli/commands/` and are added to `app` here."""

from importlib.metadata import version
from typing import Annotated

import typer

from cli.dev.command import DEV_HELP, DOCTOR_HELP, dev, doctor

APP_HELP = """bringup brings GPU machines up and keeps them right.

\b
Start here:
  bringup doctor      what this host lacks, if anything
  bringup dev         everything on this machine, with sandbox machines to try it on

Every command has its own --help with examples.
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


def main() -> None:
    """The entry point that the package installs as `bringup`."""
    app()


if __name__ == "__main__":
    main()
