"""`bringup logs`: what the steps of an operation printed, byte for byte."""

from typing import Annotated

import typer

from cli.client import Client, Object
from cli.commands.options import Api, Output, Tenant, Token, connect
from cli.errors import CliError
from cli.following import follow
from cli.output import OutputFormat, few, note, print_json
from cli.step_logs import STREAMS, Choice, end_line, heading, read_log, write

LOGS_HELP = """Print what the steps of an operation wrote: for each step run its stdout, then its stderr.

Headings go to standard error, so that a redirected log holds the machine's bytes and nothing else. On a
terminal, control characters are made visible.

With --follow it goes on printing, both streams as they come, until the node has ended; of a chosen --step
until that is done. Ctrl-C ends the following with exit status 130, not the operation.

Examples:

\b
  bringup logs 6f1e... --node gpu-1                     every step of one node
  bringup logs 6f1e... --node gpu-1 --follow            as it happens
  bringup logs 6f1e... --node gpu-1 --step packages
  bringup logs 6f1e... --step packages --attempt 2 --stderr
  bringup logs 6f1e... --node gpu-1 --step facts --stdout > facts.txt
"""


def logs(
    operation_id: Annotated[str, typer.Argument(metavar="OPERATION", help="The operation's id.")],
    node: Annotated[str | None, typer.Option(help="Only this node (or machine).")] = None,
    step: Annotated[str | None, typer.Option(help="Only steps of this name.")] = None,
    attempt: Annotated[int | None, typer.Option(min=1, help="Only this attempt. Default: all.")] = None,
    stdout: Annotated[bool, typer.Option("--stdout", help="Only standard output.")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="Only standard error.")] = False,
    following: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on printing until nothing more can come.")
    ] = False,
    output: Output = OutputFormat.TABLE,
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    chosen = [name for name, wanted in zip(STREAMS, (stdout, stderr), strict=True) if wanted]
    streams = chosen or list(STREAMS)
    choice = Choice(operation_id, node, step, attempt)
    if following and output is OutputFormat.JSON:
        raise CliError("--follow prints text as it comes; leave out one of --follow and -o json")
    with connect(api, token, tenant) as client:
        if following:
            if not follow(client, choice, streams):
                raise CliError(_nothing(client, operation_id))
            return
        runs = [run for run in choice.of_node(client) if choice.fits(run)]
        if not runs:
            raise CliError(_nothing(client, operation_id))
        if output is OutputFormat.JSON:
            print_json([_with_text(client, run, streams) for run in runs])
            return
        for run in runs:
            _print(client, run, streams)


def _nothing(client: Client, operation_id: str) -> str:
    found = Choice(operation_id).of_node(client)
    if not found:
        return f"no step of operation {operation_id} has begun"
    nodes = sorted({str(run["name"]) for run in found})
    steps = list(dict.fromkeys(str(run["step"]) for run in found))
    return f"no such step run; there are nodes {few(nodes)} and steps {', '.join(steps)}"


def _with_text(client: Client, run: Object, streams: list[str]) -> Object:
    """JSON holds text only: bytes that are not UTF-8 become replacement characters here."""
    read = {name: b"".join(read_log(client, run, name)) for name in streams}
    return {**run, **{name: data.decode(errors="replace") for name, data in read.items()}}


def _print(client: Client, run: Object, streams: list[str]) -> None:
    heading(run)
    for stream in streams:
        last = b""
        for part in read_log(client, run, stream):
            if stream == "stderr" and not last:
                note("-- stderr")
            write(part)
            last = part
        end_line(last)
