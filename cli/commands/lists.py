"""`clusters list`, `pools list`, `profiles list`, `machines list`: what there is."""

from typing import Annotated

import typer

from cli.commands.options import Api, Output, Tenant, Token, connect
from cli.output import OutputFormat, pick, print_json, show_table

CLUSTERS_HELP = """List clusters with their node arrays.

Examples:

\b
  bringup clusters list
  bringup clusters list -o json | jq -r '.[].name'
"""
POOLS_HELP = """List the pools that this tenant sees. Pools have ids, no names.

Examples:

\b
  bringup pools list
  bringup pools list -o json | jq -r '.[].id'
"""
PROFILES_HELP = """List profiles: own, public and builtin ones. NAME@VERSION is what a node array refers to.

Examples:

\b
  bringup profiles list
  bringup profiles list -o json | jq '.[] | select(.tenantId == "builtin")'
"""
MACHINES_HELP = """List machines: what cluster nodes are placed on.

Examples:

\b
  bringup machines list
  bringup machines list --state failed
  bringup machines list -o json | jq -r '.[] | select(.booked | not) | .name'
"""

clusters = typer.Typer(help="Clusters.", no_args_is_help=True)
pools = typer.Typer(help="Pools of machines.", no_args_is_help=True)
profiles = typer.Typer(help="Profiles: versioned recipes.", no_args_is_help=True)
machines = typer.Typer(help="Machines of the fleet.", no_args_is_help=True)
# A group of one command would be that command itself; the callback keeps the word `list`.
for group in (clusters, pools, profiles, machines):
    group.callback()(lambda: None)


@clusters.command("list", help=CLUSTERS_HELP)
def list_clusters(
    output: Output = OutputFormat.TABLE, api: Api = None, token: Token = None, tenant: Tenant = None
) -> None:
    with connect(api, token, tenant) as client:
        found = client.fleet_list("clusters/list")
    if output is OutputFormat.JSON:
        print_json(found)
        return
    rows = [
        [one["name"], one.get("state"), array["name"], array["profile"], array["poolId"]]
        for one in found
        for array in one["nodeArrays"] or [{"name": None, "profile": None, "poolId": None}]
    ]
    show_table(("cluster", "state", "array", "profile", "pool"), rows, "there are no clusters")


@pools.command("list", help=POOLS_HELP)
def list_pools(
    output: Output = OutputFormat.TABLE, api: Api = None, token: Token = None, tenant: Tenant = None
) -> None:
    with connect(api, token, tenant) as client:
        found = client.pools()
    if output is OutputFormat.JSON:
        print_json(found)
        return
    columns = ("pool", "site", "class", "sharing", "GPU model", "archived")
    fields = ("id", "siteId", "class", "sharing", "gpuModel", "archived")
    show_table(columns, [pick(one, *fields) for one in found], "there are no pools")


@profiles.command("list", help=PROFILES_HELP)
def list_profiles(
    output: Output = OutputFormat.TABLE, api: Api = None, token: Token = None, tenant: Tenant = None
) -> None:
    with connect(api, token, tenant) as client:
        found = client.fleet_list("profiles/list")
    if output is OutputFormat.JSON:
        print_json(found)
        return
    rows = [
        [
            f"{one['tenantId']}/{one['name']}@{version['number']}",
            version.get("usedAt") is not None,
            one.get("visibility"),
            one.get("description"),
        ]
        for one in found
        for version in one["versions"]
    ]
    show_table(("profile", "used", "visibility", "description"), rows, "there are no profiles")


@machines.command("list", help=MACHINES_HELP)
def list_machines(
    site: Annotated[str | None, typer.Option(help="Only those of the site with this id.")] = None,
    pool: Annotated[str | None, typer.Option(help="Only those of the pool with this id.")] = None,
    state: Annotated[str | None, typer.Option(help="Only those in this state.")] = None,
    output: Output = OutputFormat.TABLE,
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    given = {"siteId": site, "poolId": pool, "state": state}
    with connect(api, token, tenant) as client:
        found = client.fleet_list("nodes/list", {key: value for key, value in given.items() if value})
    if output is OutputFormat.JSON:
        print_json(found)
        return
    columns = ("name", "state", "booked", "address", "machine type", "pool", "message", "id")
    fields = ("name", "state", "booked", "address", "machineType", "poolId", "message", "id")
    show_table(columns, [pick(one, *fields) for one in found], "there are no machines")
