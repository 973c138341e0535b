"""`bringup pools`: what there is, how much of it is free, and who else may use it."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from cli.commands.options import Api, Output, Tenant, Token, connect
from cli.errors import CliError
from cli.output import OutputFormat, note, pick, print_json, show_table

LIST_HELP = """List the pools that this tenant owns or is offered. Pools have ids, no names.

Examples:

\b
  bringup pools list
  bringup pools list -o json | jq -r '.[].id'
"""
CAPACITY_HELP = """Show what a pool has of each resource: GPUs, and whole machines (host).

Every GPU and every machine is one of three: booked, usable, or held back, because its machine may not be
booked now or a part of it is booked.

Examples:

\b
  bringup pools capacity pool_01k...
  bringup pools capacity pool_01k... -o json | jq '.[] | select(.resource == "gpu") | .usable'
"""
OFFER_HELP = """Let another tenant use a pool, with a quota for each resource; again, to change the offer.

A quota below what is in use becomes what is in use. Resources that are not named keep their quota. Only
pools of machines of the platform can be offered, not those of machines that a tenant owns.

Examples:

\b
  bringup pools offer pool_01k... --to research --quota gpu=64
  bringup pools offer pool_01k... --to research --quota gpu=64 --include-descendants
"""
UNOFFER_HELP = """Withdraw an offer.

Nothing new of that tenant fits; what it holds it keeps until it is released.

Example:

\b
  bringup pools unoffer pool_01k... --to research
"""

app = typer.Typer(help="Pools of machines: list, capacity, offer, unoffer.", no_args_is_help=True)

Pool = Annotated[str, typer.Argument(metavar="POOL", help="The pool's id.")]
To = Annotated[str, typer.Option(help="The tenant that is meant.")]


@app.command("list", help=LIST_HELP)
def list_pools(
    output: Output = OutputFormat.TABLE, api: Api = None, token: Token = None, tenant: Tenant = None
) -> None:
    with connect(api, token, tenant) as client:
        found = client.pools()
    if output is OutputFormat.JSON:
        print_json(found)
        return
    columns = ("pool", "owned", "site", "class", "sharing", "GPU model", "quota", "archived")
    rows = [
        [
            *pick(one, "id", "owned", "siteId", "class", "sharing", "gpuModel"),
            quota_text(one.get("quotas") or []),
            one["archived"],
        ]
        for one in found
    ]
    show_table(columns, rows, "there are no pools")


@app.command("capacity", help=CAPACITY_HELP)
def capacity(
    pool: Pool,
    output: Output = OutputFormat.TABLE,
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    with connect(api, token, tenant) as client:
        found = client.fleet("pools/capacity", {"poolId": pool})["capacity"]
    if output is OutputFormat.JSON:
        print_json(found)
        return
    columns = ("resource", "total", "usable", "booked", "held back")
    fields = ("resource", "total", "usable", "booked", "heldBack")
    show_table(columns, [pick(one, *fields) for one in found], "the pool has nothing")


@app.command("offer", help=OFFER_HELP)
def offer(
    pool: Pool,
    to: To,
    quota: Annotated[
        list[str] | None, typer.Option(metavar="RESOURCE=COUNT", help="How much it may hold; repeatable.")
    ] = None,
    include_descendants: Annotated[
        bool, typer.Option("--include-descendants", help="Also the tenants below it, on the same quota.")
    ] = False,
    priority: Annotated[int, typer.Option(min=-1_000, max=1_000, help="Orders pools in placement.")] = 0,
    output: Output = OutputFormat.TABLE,
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    asked = {
        "poolId": pool,
        "toTenantId": to,
        "quota": counts(quota or [], "--quota"),
        "includeDescendants": include_descendants,
        "priority": priority,
    }
    with connect(api, token, tenant) as client:
        found = client.fleet("pools/offer", asked)["pool"]
    if output is OutputFormat.JSON:
        print_json(found)
        return
    typer.echo(f"pool {pool} is offered to {to}: {quota_text(found['quotas']) or 'no quota'}")


@app.command("unoffer", help=UNOFFER_HELP)
def unoffer(pool: Pool, to: To, api: Api = None, token: Token = None, tenant: Tenant = None) -> None:
    with connect(api, token, tenant) as client:
        removed = client.fleet("pools/unoffer", {"poolId": pool, "toTenantId": to})["removed"]
    if removed:
        typer.echo(f"pool {pool} is not offered to {to} any more")
    else:
        note(f"pool {pool} was not offered to {to}")


def counts(given: Sequence[str], option: str) -> dict[str, int]:
    """`gpu=64` and the like by resource; CliError for anything else."""
    found: dict[str, int] = {}
    for one in given:
        resource, equals, count = one.partition("=")
        if not (resource and equals and count.isascii() and count.isdigit()):
            raise CliError(f"{option}: {one!r} is not RESOURCE=COUNT, such as gpu=8")
        found[resource] = int(count)
    return found


def quota_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """`gpu 8 of 64`: what is in use of how much."""
    return ", ".join(f"{row['resource']} {row['inUse']} of {row['max']}" for row in rows)
