"""`bringup init`: the first administrator of an installation that is not `bringup dev`."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.errors import CliError, ExitCode
from cli.output import note

INIT_HELP = """Make the first tenant, and the token of the fleet's first administrator.

For an installation of your own, once its schema is there (python -m database upgrade); `bringup dev` does all
of this by itself. Needs BRINGUP_DATABASE_URL, the database as the application's role. It may be run again: a
token that is valid is kept, and one that was lost is replaced by a new one.

Examples:

\b
  bringup init --token-file /etc/bringup/admin.token
  bringup tenants list --token /etc/bringup/admin.token --tenant platform
"""
_URL = "BRINGUP_DATABASE_URL"


def init(
    token_file: Annotated[Path, typer.Option(help="Where the token is written, readable by you only.")],
    tenant: Annotated[str, typer.Option(help="The tenant that the administrator belongs to.")] = "platform",
    principal: Annotated[str, typer.Option(help="The administrator's name in events.")] = "admin",
) -> None:
    """Runs the database's own program, which is where tokens are made."""
    if not os.environ.get(_URL):
        raise CliError(f"{_URL} is not set: postgresql+asyncpg://USER:PASSWORD@HOST:PORT/NAME")
    words = ["bootstrap", "--tenant", tenant, "--principal", principal, "--role", "fleet-admin"]
    done = subprocess.run(
        [sys.executable, "-m", "database", *words, "--token-file", str(token_file)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        reason = lines[-1] if lines else f"exit status {done.returncode}"
        raise CliError(f"the first administrator could not be made: {reason}", ExitCode.FAILED)
    typer.echo(f"tenant {tenant}, fleet-admin {principal}, token in {token_file}")
    note(f"next: bringup tenants create NAME --token {token_file} --tenant {tenant}")
