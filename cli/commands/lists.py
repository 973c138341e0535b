"""`clusters list`, `profiles list`: what there is."""

import typer

from cli.commands.options import Api, Output, Tenant, Token, connect
from cli.output import OutputFormat, print_json, show_table

CLUSTERS_HELP = """List clusters with their node arrays.

Examples:

\b
  bringup clusters list
  bringup clusters list -o json | jq -r '.[].name'
"""
PROFILES_HELP = """List profiles: own, public and builtin ones. NAME@VERSION is what a node array refers to.

Examples:

\b
  bringup profiles list
  bringup profiles list -o json | jq '.[] | select(.tenantId == "builtin")'
"""

clusters = typer.Typer(help="Clusters.", no_args_is_help=True)
profiles = typer.Typer(help="Profiles: versioned recipes.", no_args_is_help=True)
# A group of one command would be that command itself; the callback keeps the word `list`.
for group in (clusters, profiles):
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
