"""`bringup tenants` and `bringup tokens`: who there is, and who speaks for whom."""

from enum import StrEnum
from typing import Annotated

import typer

from cli.commands.options import Api, Output, Tenant, Token, connect
from cli.output import OutputFormat, moment, note, pick, print_json, show_table

TENANTS_HELP = """List the tenant and all below it.

Examples:

\b
  bringup tenants list
  bringup tenants list --tenant research -o json
"""
CREATE_TENANT_HELP = """Make a tenant. Who belongs to its parent acts for it, too.

Without --parent it is below no other; only administrators of the fleet may make such.

Examples:

\b
  bringup tenants create research --parent company
  bringup tokens create alice --role owner --tenant research
"""
TOKENS_HELP = """List the tenant's tokens, also expired and revoked ones. Their texts cannot be read again.

Examples:

\b
  bringup tokens list
  bringup tokens list --principal alice
"""
CREATE_TOKEN_HELP = """Issue a token for a person or a program.

Its text goes to standard output, once and never again.

viewer reads; operator also operates nodes, operations and reservations; author also writes profiles; owner
does all within the tenant and those below it; fleet-admin does all everywhere.

Examples:

\b
  bringup tokens create slurm --role operator > slurm.token
  bringup tokens create grafana --role viewer --expires 2027-01-01T00:00:00Z
  bringup tokens create team-a --role operator --pool pool_01k...
"""
REVOKE_TOKEN_HELP = """End a token at once.

Example:

\b
  bringup tokens revoke tok_01k...
"""


class RoleName(StrEnum):
    """What a token's bearer may do."""

    FLEET_ADMIN = "fleet-admin"
    OWNER = "owner"
    OPERATOR = "operator"
    AUTHOR = "author"
    VIEWER = "viewer"


tenants = typer.Typer(help="Tenants: list, create.", no_args_is_help=True)
tokens = typer.Typer(help="Tokens: list, create, revoke.", no_args_is_help=True)


@tenants.command("list", help=TENANTS_HELP)
def list_tenants(
    output: Output = OutputFormat.TABLE, api: Api = None, token: Token = None, tenant: Tenant = None
) -> None:
    with connect(api, token, tenant) as client:
        found = client.fleet_list("tenants/list")
    if output is OutputFormat.JSON:
        print_json(found)
        return
    rows = [[*pick(one, "id", "parentTenantId", "createdBy"), moment(one.get("createdAt"))] for one in found]
    show_table(("tenant", "parent", "made by", "made at"), rows, "there are no tenants")


@tenants.command("create", help=CREATE_TENANT_HELP)
def create_tenant(
    name: Annotated[str, typer.Argument(help="The tenant's id: letters, digits and . _ : -")],
    parent: Annotated[str | None, typer.Option(help="The tenant that it is below.")] = None,
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    asked = {"name": name, **({"parentTenantId": parent} if parent else {})}
    with connect(api, token, tenant) as client:
        made = client.fleet("tenants/create", asked)["tenant"]
    below = f", below {made['parentTenantId']}" if made["parentTenantId"] else ""
    typer.echo(f"tenant {made['id']}{below}")


@tokens.command("list", help=TOKENS_HELP)
def list_tokens(
    principal: Annotated[str | None, typer.Option(help="Only those of this person or program.")] = None,
    output: Output = OutputFormat.TABLE,
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    with connect(api, token, tenant) as client:
        found = client.fleet_list("tokens/list", {"principal": principal} if principal else None)
    if output is OutputFormat.JSON:
        print_json(found)
        return
    rows = [
        [
            *pick(one, "id", "principal", "role"),
            ", ".join(str(value) for value in one["scope"].values() if value),
            one["state"],
            *(moment(one.get(name)) for name in ("createdAt", "expiresAt", "lastUsedAt")),
        ]
        for one in found
    ]
    columns = ("token", "principal", "role", "only for", "state", "made at", "expires", "last used")
    show_table(columns, rows, "there are no tokens")


@tokens.command("create", help=CREATE_TOKEN_HELP)
def create_token(
    principal: Annotated[str, typer.Argument(help="Who it speaks for; events name it.")],
    role: Annotated[RoleName, typer.Option(help="What it may do.")],
    only_tenant: Annotated[
        str | None, typer.Option(help="Narrow it to this tenant below, and those below that.")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="Narrow it to the pool with this id.")] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="When it ends, such as 2027-01-01T00:00:00Z.")
    ] = None,
    output: Output = OutputFormat.TABLE,
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    scope = {"tenantId": only_tenant, "poolId": pool}
    asked = {
        "principal": principal,
        "role": str(role),
        "scope": {name: value for name, value in scope.items() if value},
        **({"expiresAt": expires} if expires else {}),
    }
    with connect(api, token, tenant) as client:
        made = client.fleet("tokens/create", asked)
    if output is OutputFormat.JSON:
        print_json(made)
        return
    note(f"token {made['token']['id']} of {principal}; this is its text, which is not shown again:")
    typer.echo(made["text"])


@tokens.command("revoke", help=REVOKE_TOKEN_HELP)
def revoke_token(
    token_id: Annotated[str, typer.Argument(metavar="TOKEN_ID", help="Its id, not its text.")],
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    with connect(api, token, tenant) as client:
        ended = client.fleet("tokens/revoke", {"tokenId": token_id})["token"]
    typer.echo(f"token {ended['id']} of {ended['principal']} is {ended['state']}")
