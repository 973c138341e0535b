"""`bringup operations cancel|retry|resume|abort`: what a person decides about an operation."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from cli.client import Object
from cli.commands.finishing import finish, print_started
from cli.commands.options import Api, Output, Tenant, Timeout, Token, Wait, connect
from cli.errors import ExitCode
from cli.output import OutputFormat, few, note

CANCEL_HELP = """End an operation, or only what it does on some nodes.

What has not begun ends at once. Where a step runs, all its processes get TERM and after a grace KILL; the
node is canceled once none of them is left. While its machine does not answer it is cancel_unconfirmed. A
canceled node keeps its machine: retry it, or terminate it. Asking twice does no harm. A terminate cannot be
cancelled.

With --wait the exit status is that of `bringup operations watch`: 1 once the operation is canceled.

Examples:

\b
  bringup operations cancel 6f1e...
  bringup operations cancel 6f1e... --wait --timeout 120
  bringup operations cancel 6f1e... --node gpu-3 --node gpu-7      the other nodes go on
"""
RETRY_HELP = """Try again what did not succeed, under a new operation.

A node goes on at the step where it stopped, with the very plan it had; steps that were done are not run
again. Nodes that succeeded, still run, or were put to something else since are left alone; it is said why.

Kinds for --only: failed, canceled, unreachable (its machine could not be reached, or was lost), not_started
(it ended before it had its machine).

Examples:

\b
  bringup operations retry 6f1e...
  bringup operations retry 6f1e... --only unreachable --only not_started --wait
  bringup operations retry 6f1e... --node gpu-3 --from-start      every step again, with the same plan
  bringup operations retry 6f1e... --request-id again-4711        at most once, however often asked
"""
RESUME_HELP = """Let held nodes go on: the step that failed is run again, then the rest.

A step with `onFailure: hold` that fails holds its node, with everything as the step left it. Look at it
(bringup logs, or on the machine itself), mend it, then resume; or abort.

Examples:

\b
  bringup operations resume 6f1e...                     every held node
  bringup operations resume 6f1e... --node gpu-3 --wait
"""
ABORT_HELP = """Give held nodes up: they end as failed, with the failure of the step that holds them.

They keep their machine, and can be retried or terminated afterwards.

Examples:

\b
  bringup operations abort 6f1e...                      every held node
  bringup operations abort 6f1e... --node gpu-3
"""

_MOST_NOTES = 20
OperationId = Annotated[str, typer.Argument(metavar="ID", help="The operation's id.", show_default=False)]
Nodes = Annotated[
    list[str] | None,
    typer.Option(
        "--node", help="Only this node (or machine); may be repeated. Default: all.", metavar="NAME"
    ),
]


class Kind(StrEnum):
    """Kinds of runs that did not succeed."""

    FAILED = "failed"
    CANCELED = "canceled"
    UNREACHABLE = "unreachable"
    NOT_STARTED = "not_started"


def cancel(
    operation_id: OperationId,
    node: Nodes = None,
    wait: Wait = False,
    timeout: Timeout = None,
    output: Output = OutputFormat.TABLE,
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    with connect(api, token, tenant) as client:
        answer = client.fleet("operations/cancel", _body(operation_id, node))
        missed = sorted(set(node or ()) - set(answer["names"]))
        for name in missed[:_MOST_NOTES]:
            note(f"{name}: what was to be cancelled has already ended")
        code = ExitCode.PARTIAL if missed else ExitCode.OK
        what = f"cancel of {few(answer['names'])}" if answer["names"] else _cancelled_before(answer)
        if output is OutputFormat.TABLE:
            print_started(operation_id, what, wait=wait)
        raise typer.Exit(finish(client, operation_id, answer, code, output, timeout, wait=wait))


def _cancelled_before(answer: Object) -> str:
    return f"nothing is left to cancel; it is {answer['operation']['state']}"


def retry(
    operation_id: OperationId,
    only: Annotated[
        list[Kind] | None,
        typer.Option(help="Only what ended like this; may be repeated. Default: all that did not succeed."),
    ] = None,
    node: Nodes = None,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Begin at the first step, not where it stopped.")
    ] = False,
    request_id: Annotated[
        str | None, typer.Option(help="Your own id for this request; a second one with it is refused.")
    ] = None,
    wait: Wait = False,
    timeout: Timeout = None,
    output: Output = OutputFormat.TABLE,
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    body = _body(operation_id, node)
    if only:
        body["only"] = [kind.value for kind in only]
    if from_start:
        body["from"] = "start"
    if request_id is not None:
        body["requestId"] = request_id
    with connect(api, token, tenant) as client:
        answer = client.fleet("operations/retry", body)
        for one in answer["left"][:_MOST_NOTES]:
            note(f"{one['name']} is left alone: {one['reason']}")
        if len(answer["left"]) > _MOST_NOTES:
            note(f"and {len(answer['left']) - _MOST_NOTES} more are left alone")
        # What was asked for by name and is not done makes it a part of what was asked for.
        code = ExitCode.PARTIAL if node and answer["left"] else ExitCode.OK
        new = str(answer["operationId"])
        if output is OutputFormat.TABLE:
            print_started(new, f"retry of {few(answer['retried'])} of operation {operation_id}", wait=wait)
        raise typer.Exit(finish(client, new, answer, code, output, timeout, wait=wait))


def resume(
    operation_id: OperationId,
    node: Nodes = None,
    wait: Wait = False,
    timeout: Timeout = None,
    output: Output = OutputFormat.TABLE,
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    _decide("resume", operation_id, node, (api, token, tenant), output, timeout, wait=wait)


def abort(
    operation_id: OperationId,
    node: Nodes = None,
    wait: Wait = False,
    timeout: Timeout = None,
    output: Output = OutputFormat.TABLE,
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    _decide("abort", operation_id, node, (api, token, tenant), output, timeout, wait=wait)


def _decide(
    verb: str,
    operation_id: str,
    names: Sequence[str] | None,
    connection: tuple[str | None, str | None, str | None],
    output: OutputFormat,
    timeout: float | None,
    *,
    wait: bool,
) -> None:
    with connect(*connection) as client:
        answer = client.fleet(f"operations/{verb}", _body(operation_id, names))
        if output is OutputFormat.TABLE:
            print_started(operation_id, f"{verb} of {few(answer['names'])}", wait=wait)
        raise typer.Exit(finish(client, operation_id, answer, ExitCode.OK, output, timeout, wait=wait))


def _body(operation_id: str, names: Sequence[str] | None) -> dict[str, Any]:
    return {"operationId": operation_id, **({"names": list(names)} if names else {})}
