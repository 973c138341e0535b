"""`bringup reservations`: GPUs and whole machines held without a cluster."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from cli.commands.options import Api, Output, Tenant, Token, connect
from cli.commands.pools import counts
from cli.output import OutputFormat, moment, pick, print_json, show_table

LIST_HELP = """List this tenant's reservations, also ended ones and those of its cluster nodes.

Examples:

\b
  bringup reservations list
  bringup reservations list --pool pool_01k... --state active
"""
CREATE_HELP = """Book GPUs, or whole machines (host), of a pool.

GPUs are taken on as few machines as possible. A refusal says which limit bound, and how much was left.

Examples:

\b
  bringup reservations create pool_01k... gpu=4
  bringup reservations create pool_01k... host=2 --expires 2027-01-01T00:00:00Z
"""
RELEASE_HELP = """Give back what a reservation holds.

That of a cluster node ends with the node: bringup nodes terminate.

Example:

\b
  bringup reservations release res_01k...
"""

app = typer.Typer(help="Reservations: list, create, release.", no_args_is_help=True)


@app.command("list", help=LIST_HELP)
def list_reservations(
    pool: Annotated[str | None, typer.Option(help="Only those in the pool with this id.")] = None,
    state: Annotated[str | None, typer.Option(help="Only those in this state: active or ended.")] = None,
    output: Output = OutputFormat.TABLE,
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    given = {name: value for name, value in {"poolId": pool, "state": state}.items() if value}
    with connect(api, token, tenant) as client:
        found = client.fleet_list("reservations/list", given)
    if output is OutputFormat.JSON:
        print_json(found)
        return
    rows = [
        [
            *pick(one, "id", "state", "poolId"),
            held_text(one["bookings"]),
            one.get("clusterNodeId"),
            *(moment(one.get(name)) for name in ("createdAt", "expiresAt", "endedAt")),
        ]
        for one in found
    ]
    columns = ("reservation", "state", "pool", "holds", "cluster node", "made at", "expires", "ended at")
    show_table(columns, rows, "there are no reservations")


@app.command("create", help=CREATE_HELP)
def create(
    pool: Annotated[str, typer.Argument(metavar="POOL", help="The pool's id.")],
    resources: Annotated[
        list[str], typer.Argument(metavar="RESOURCE=COUNT...", help="gpu=COUNT, host=COUNT, or both.")
    ],
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="When it ends by itself, as 2027-01-01T00:00:00Z.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--idempotency-key", help="A repeat with the same key books nothing more.")
    ] = None,
    output: Output = OutputFormat.TABLE,
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    asked = {
        "poolId": pool,
        "resources": counts(resources, "RESOURCE=COUNT"),
        **({"expiresAt": expires} if expires else {}),
        **({"idempotencyKey": key} if key else {}),
    }
    with connect(api, token, tenant) as client:
        made = client.fleet("reservations/create", asked)["reservation"]
    if output is OutputFormat.JSON:
        print_json(made)
        return
    typer.echo(f"reservation {made['id']}: {held_text(made['bookings'])}")


@app.command("release", help=RELEASE_HELP)
def release(
    reservation: Annotated[str, typer.Argument(metavar="RESERVATION", help="Its id.")],
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    with connect(api, token, tenant) as client:
        ended = client.fleet("reservations/release", {"reservationId": reservation})["reservation"]
    typer.echo(f"reservation {ended['id']} has {ended['state']}, by {ended['endedBy']}")


def held_text(bookings: Sequence[Mapping[str, Any]]) -> str:
    """`4 gpu on 2 machines`: the GPUs, or the hosts where there are none."""
    kinds = Counter(str(one["resource"]) for one in bookings)
    if len(kinds) > 1:
        kinds.pop("host")
    machines = len({one["nodeId"] for one in bookings})
    held = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return f"{held} on {machines} machine{'' if machines == 1 else 's'}" if held else ""
