"""`bringup logs`: what the steps of an operation printed, byte for byte."""

import base64
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from cli.client import Client, Object
from cli.commands.options import Api, Output, Tenant, Token, connect
from cli.errors import CliError
from cli.output import OutputFormat, neutral, note, print_json

LOGS_HELP = """Print what the steps of an operation wrote: for each step run its stdout, then its stderr.

Headings go to standard error, so that a redirected log holds the machine's bytes and nothing else. On a
terminal, control characters are made visible.

Examples:

\b
  bringup logs 6f1e... --node gpu-1                     every step of one node
  bringup logs 6f1e... --node gpu-1 --step packages
  bringup logs 6f1e... --step packages --attempt 2 --stderr
  bringup logs 6f1e... --node gpu-1 --step facts --stdout > facts.txt
"""

_STREAMS = ("stdout", "stderr")


def logs(
    operation_id: Annotated[str, typer.Argument(metavar="OPERATION", help="The operation's id.")],
    node: Annotated[str | None, typer.Option(help="Only this node (or machine).")] = None,
    step: Annotated[str | None, typer.Option(help="Only steps of this name.")] = None,
    attempt: Annotated[int | None, typer.Option(min=1, help="Only this attempt. Default: all.")] = None,
    stdout: Annotated[bool, typer.Option("--stdout", help="Only standard output.")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="Only standard error.")] = False,
    output: Output = OutputFormat.TABLE,
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    chosen = [name for name, wanted in zip(_STREAMS, (stdout, stderr), strict=True) if wanted]
    streams = chosen or list(_STREAMS)
    with connect(api, token, tenant) as client:
        found = client.fleet_list("operations/steps", {"operationId": operation_id})
        runs = [run for run in found if _wanted(run, node, step, attempt)]
        if not runs:
            raise CliError(_nothing(found, operation_id))
        if output is OutputFormat.JSON:
            print_json([_with_text(client, run, streams) for run in runs])
            return
        for run in runs:
            _print(client, run, streams)


def _wanted(run: Object, node: str | None, step: str | None, attempt: int | None) -> bool:
    given = ((node, run["name"]), (step, run["step"]), (attempt, run["attempt"]))
    return all(asked is None or asked == has for asked, has in given)


def _nothing(found: list[Object], operation_id: str) -> str:
    if not found:
        return f"no step of operation {operation_id} has begun"
    nodes = sorted({str(run["name"]) for run in found})
    steps = list(dict.fromkeys(str(run["step"]) for run in found))
    few = ", ".join(nodes[:10]) + (f" and {len(nodes) - 10} more" if len(nodes) > 10 else "")
    return f"no such step run; there are nodes {few} and steps {', '.join(steps)}"


def _with_text(client: Client, run: Object, streams: list[str]) -> Object:
    """JSON holds text only: bytes that are not UTF-8 become replacement characters here."""
    read = {name: b"".join(read_log(client, run, name)) for name in streams}
    return {**run, **{name: data.decode(errors="replace") for name, data in read.items()}}


def _print(client: Client, run: Object, streams: list[str]) -> None:
    ending = run["state"] if run.get("exitStatus") is None else f"{run['state']}, exit {run['exitStatus']}"
    note(f"== {run['name']}, step {run['step']}, attempt {run['attempt']}: {ending}")
    for stream in streams:
        last = b""
        for part in read_log(client, run, stream):
            if stream == "stderr" and not last:
                note("-- stderr")
            _write(part)
            last = part
        if last and not last.endswith(b"\n") and sys.stdout.isatty():
            sys.stdout.write("\n")
        sys.stdout.flush()


def read_log(client: Client, run: Object, stream: str) -> Iterator[bytes]:
    """One stream of one step run as far as it is stored now, part after part."""
    offset = 0
    while True:
        asked = {"stepRunId": run["stepRunId"], "stream": stream, "offset": offset}
        part = client.fleet("operations/logs", asked)
        data = base64.b64decode(part["dataBase64"])
        if data:
            yield data
        if part["ended"] or part["nextOffset"] <= offset:
            return
        offset = part["nextOffset"]


def _write(data: bytes) -> None:
    if sys.stdout.isatty():
        sys.stdout.write(neutral(data.decode(errors="backslashreplace")))
    else:
        sys.stdout.buffer.write(data)
