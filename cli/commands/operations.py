"""`bringup operations`: what was asked for, how far it is, how it ended."""

from typing import Annotated

import typer

from cli import progress
from cli.advice import advice
from cli.commands import interventions
from cli.commands.interventions import OperationId
from cli.commands.options import Api, Output, Tenant, Token, connect
from cli.output import OutputFormat, console, print_json, show_table
from cli.watching import watch

LIST_HELP = """List operations, newest first.

Examples:

\b
  bringup operations list
  bringup operations list --cluster demo --state failed
  bringup operations list --limit 1 -o json | jq -r '.[0].id'
"""
SHOW_HELP = """Show one operation: its state, and each node with its current step and last message.

What its steps did is summed up, such as `9 steps: 3 changed, 6 no change`.

Examples:

\b
  bringup operations show 6f1e...
  bringup operations show 6f1e... -o json | jq .state
"""
WATCH_HELP = """Follow an operation until it has ended.

A live table on a terminal, lines elsewhere. The exit status says how it ended: 0 succeeded, 1 failed or
canceled, 3 partially succeeded, 4 not ended within --timeout. Ctrl-C stops the watching, not the operation.

A held node waits for `bringup operations resume` or `abort`, and so does this: it says so once and goes on.

Examples:

\b
  bringup operations watch 6f1e...
  bringup operations watch 6f1e... --timeout 600 && echo ready
"""

app = typer.Typer(help="Operations: list, show, watch, cancel, retry, resume, abort.", no_args_is_help=True)


@app.command("list", help=LIST_HELP)
def list_operations(
    cluster: Annotated[str | None, typer.Option(help="Only those of this cluster.")] = None,
    state: Annotated[str | None, typer.Option(help="Only those in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 20,
    output: Output = OutputFormat.TABLE,
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    chosen = {"cluster": cluster, "state": state}
    with connect(api, token, tenant) as client:
        given = {key: value for key, value in chosen.items() if value is not None}
        found = client.fleet_list("operations/list", given, limit)
    if output is OutputFormat.JSON:
        print_json(found)
        return
    columns = ("id", "action", "state", "about", "nodes", "asked at", "time", "message")
    show_table(columns, progress.summary_rows(found), "there are no such operations")


@app.command("show", help=SHOW_HELP)
def show(
    operation_id: OperationId,
    output: Output = OutputFormat.TABLE,
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    with connect(api, token, tenant) as client:
        operation = client.operation(operation_id)
    if output is OutputFormat.JSON:
        print_json(operation)
    else:
        console().print(progress.picture(operation, advice=advice(operation)))


@app.command("watch", help=WATCH_HELP)
def watch_operation(
    operation_id: OperationId,
    timeout: Annotated[
        float | None, typer.Option(min=0, help="Seconds to wait at most; then exit status 4.")
    ] = None,
    output: Output = OutputFormat.TABLE,
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    with connect(api, token, tenant) as client:
        operation = watch(client, operation_id, output, timeout)
    if output is OutputFormat.JSON:
        print_json(operation)
    raise typer.Exit(progress.exit_code(operation))


app.command("cancel", help=interventions.CANCEL_HELP)(interventions.cancel)
app.command("retry", help=interventions.RETRY_HELP)(interventions.retry)
app.command("resume", help=interventions.RESUME_HELP)(interventions.resume)
app.command("abort", help=interventions.ABORT_HELP)(interventions.abort)
