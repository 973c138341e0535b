"""`bringup tenants`, `tokens`, `pools` and `reservations`, as an administrator and a tenant use them."""

import uuid

import pytest

from database.unit_of_work import Database
from tests.cli.conftest import Cli
from tests.database.world import World, make_world


async def test_a_tenant_is_made_below_with_a_token_of_its_own(cli: Cli, world: World) -> None:
    name = f"t-{uuid.uuid4().hex[:8]}"
    made = await cli.run("tenants", "create", name, "--parent", world.tenant)
    assert (made.status, made.text) == (0, f"tenant {name}, below {world.tenant}\n")
    issued = await cli.run("tokens", "create", "alice", "--role", "owner", "--tenant", name)
    assert issued.status == 0
    (text,) = issued.text.splitlines()
    assert "not shown again" in issued.errors
    alice = cli.told(token=text, tenant=name)
    listed = await alice.run("tenants", "list")
    assert [line.split()[0] for line in listed.text.splitlines()[1:]] == [name]
    mine = await alice.run("tokens", "list", "--principal", "alice")
    assert text not in mine.text
    (token,) = (await alice.run("tokens", "list", "-o", "json")).json()
    revoked = await cli.run("tokens", "revoke", token["id"], "--tenant", name)
    assert revoked.text == f"token {token['id']} of alice is revoked\n"
    assert (await alice.run("tenants", "list")).status == 2


async def test_a_refusal_says_who_may(cli: Cli, world: World) -> None:
    root = await cli.run("tenants", "create", f"t-{uuid.uuid4().hex[:8]}")
    assert root.status == 2
    assert "on the fleet" in root.errors
    late = await cli.run("tokens", "create", "p", "--role", "viewer", "--expires", "2001-01-01T00:00:00Z")
    assert late.status == 2
    assert "expiresAt: must be within the next" in late.errors
    king = await cli.run("tokens", "create", "p", "--role", "king")
    assert king.status == 2
    assert "fleet-admin" in king.errors


async def test_a_pool_is_offered_used_and_withdrawn(cli: Cli, world: World, database: Database) -> None:
    guest = await make_world(database)
    theirs = cli.told(token=guest.token, tenant=guest.tenant)
    offered = await cli.run("pools", "offer", world.pool_id, "--to", guest.tenant, "--quota", "gpu=8")
    assert offered.text == f"pool {world.pool_id} is offered to {guest.tenant}: gpu 0 of 8\n"
    row = next(
        line.split()
        for line in (await theirs.run("pools", "list")).text.splitlines()
        if world.pool_id in line
    )
    assert row[1] == "no"
    await world.machines(1, ownership="platform")
    booked = await theirs.run("reservations", "create", world.pool_id, "gpu=3")
    reservation = booked.text.split()[1].rstrip(":")
    assert booked.text == f"reservation {reservation}: 3 gpu on 1 machine\n"
    over = await theirs.run("reservations", "create", world.pool_id, "gpu=6")
    assert over.status == 2
    assert over.errors.startswith("bringup: QUOTA_EXCEEDED: the quota for gpu in pool")
    counted = (await cli.run("pools", "capacity", world.pool_id)).text.splitlines()
    assert [line.split() for line in counted[1:]] == [
        ["gpu", "8", "5", "3", "0"],
        ["host", "1", "0", "0", "1"],
    ]
    assert reservation in (await theirs.run("reservations", "list", "--state", "active")).text
    released = await theirs.run("reservations", "release", reservation)
    assert released.text == f"reservation {reservation} has ended, by tester\n"
    gone = await cli.run("pools", "unoffer", world.pool_id, "--to", guest.tenant)
    assert gone.text == f"pool {world.pool_id} is not offered to {guest.tenant} any more\n"
    again = await cli.run("pools", "unoffer", world.pool_id, "--to", guest.tenant)
    assert (again.status, again.text) == (0, "")
    assert "was not offered" in again.errors


@pytest.mark.parametrize("given", ["gpu", "gpu=", "=4", "gpu=four", "gpu=-1", "gpu=1.5", "gpu=\u0664"])
async def test_a_resource_is_named_with_its_count(cli: Cli, world: World, given: str) -> None:
    for words in (
        ("pools", "offer", world.pool_id, "--to", "x", "--quota", given),
        ("reservations", "create", world.pool_id, given),
    ):
        done = await cli.run(*words)
        assert done.status == 2
        assert "is not RESOURCE=COUNT" in done.errors


async def test_a_pools_token_is_made_with_its_pool(cli: Cli, world: World) -> None:
    issued = await cli.run("tokens", "create", "team", "--role", "viewer", "--pool", world.pool_id)
    team = cli.told(token=issued.text.strip())
    assert world.pool_id in (await team.run("pools", "list")).text
    refused = await team.run("clusters", "list")
    assert refused.status == 2
    assert f"the token is for pool {world.pool_id} only" in refused.errors
