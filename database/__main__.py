"""`python -m database upgrade | bootstrap`: the schema, and the first tenant with its token."""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

from sqlalchemy.dialects.postgresql import insert

from database.builtin import store_builtin_profiles
from database.schema import upgrade
from database.settings import DatabaseSettings, OwnerSettings
from database.tables import Tenant
from database.tokens import find_principal, issue_token
from database.unit_of_work import Database
from domain.permissions import Role


def write_private(path: Path, text: str) -> None:
    """Writes a file that only its owner can read, in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.touch(mode=0o600)
    new.write_text(text)
    os.replace(new, path)


async def bootstrap(tenant: str, principal: str, role: Role, token: str) -> str:
    """Makes tenant, builtin profiles and token unless they are there; `token` is kept when it is valid."""
    database = Database(DatabaseSettings().url, pool_size=1)
    try:
        async with database.begin() as session:
            await session.execute(insert(Tenant).values(id=tenant).on_conflict_do_nothing())
            await store_builtin_profiles(session)
            known = await find_principal(session, token) if token else None
            if known is None or known.tenant_id != tenant:
                _, token = await issue_token(session, tenant_id=tenant, principal=principal, role=role)
    finally:
        await database.close()
    return token


def parser() -> argparse.ArgumentParser:
    """The two commands."""
    top = argparse.ArgumentParser(prog="python -m database", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "upgrade",
        help="run all pending migrations as the owner role "
        "(BRINGUP_DATABASE_OWNER_URL, BRINGUP_DATABASE_APP_ROLE)",
    )
    first = commands.add_parser(
        "bootstrap", help="make the first tenant and its token (BRINGUP_DATABASE_URL)"
    )
    first.add_argument("--tenant", required=True)
    first.add_argument("--principal", required=True)
    first.add_argument("--role", type=Role, choices=list(Role), default=Role.OWNER)
    first.add_argument("--token-file", type=Path, required=True, help="0600; a valid token in it is kept")
    return top


def main() -> None:
    """Runs one command; errors go to standard error, exit status 1."""
    arguments = parser().parse_args()
    if arguments.command == "upgrade":
        owner = OwnerSettings()
        asyncio.run(upgrade(owner.owner_url, owner.app_role))
        return
    path: Path = arguments.token_file
    known = path.read_text().strip() if path.exists() else ""
    token = asyncio.run(bootstrap(arguments.tenant, arguments.principal, arguments.role, known))
    # After the commit: a token in the file that the database does not know would be the worse half.
    write_private(path, token + "\n")
    made = {"tenant": arguments.tenant, "principal": arguments.principal, "tokenFile": str(path)}
    json.dump(made, sys.stdout)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
