"""pools.offer and unoffer, and what the offered tenant sees, may and holds; each test names its rules."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import select

from database.clusters import NewArray
from database.custody import hand_over_node
from database.quotas import quotas_of
from database.tables import Authorization, Booking, Event, Offer, Pool, QuotaRow, Reservation
from database.unit_of_work import Database
from domain.permissions import Permission, Role, role_allows
from tests.api.client import Api, fleet_error, paths
from tests.api.test_tenants import child
from tests.database.scenes import run_of
from tests.database.world import World, make_world

UNKNOWN = "pool_" + "0" * 26


@pytest.fixture
async def guest(database: Database) -> World:
    """Another tenant, which owns machines of its own and sees nothing of the world's."""
    return await make_world(database)


def of(api: Api, world: World) -> Api:
    """The API as a tenant's owner sees it."""
    return Api(api.client, world.token, world.tenant)


async def shared_pool(api: Api, world: World, machines: int = 0, **values: Any) -> str:
    """A pool on a site of the platform's, whose machines may be lent; with so many of eight GPUs each."""
    admin = api.as_token(await world.token_for(Role.FLEET_ADMIN))
    name = f"hall-{await world.count(Pool, Pool.tenant_id == world.tenant)}"
    site = (await admin.fleet("sites.create", name=name, region="north", custom=False)).json()["site"]["id"]
    answer = await api.fleet(
        "pools.create", siteId=site, **{"class": "metal-host", "gpuModel": "H200", **values}
    )
    assert answer.status_code == 200, answer.text
    pool_id = str(answer.json()["pool"]["id"])
    if machines:
        await world.machines(machines, pool_id=pool_id, site_id=site, ownership="platform")
    return pool_id


async def offer(api: Api, pool_id: str, to: str, gpus: int = 64, **values: Any) -> dict[str, Any]:
    """An offer that must be taken; the pool as it is answered."""
    answer = await api.fleet(
        "pools.offer", poolId=pool_id, toTenantId=to, **{"quota": {"gpu": gpus}, **values}
    )
    assert answer.status_code == 200, answer.text
    pool: dict[str, Any] = answer.json()["pool"]
    return pool


async def seen(api: Api, pool_id: str) -> dict[str, Any] | None:
    """The pool as the client's tenant sees it, in both ways of asking."""
    listed = (await api.fleet("pools.list")).json()["pools"]
    mine = next((pool for pool in listed if pool["id"] == pool_id), None)
    got = await api.fleet("pools.get", poolId=pool_id)
    if mine is None:
        fleet_error(got, 404, "NOT_FOUND")
    else:
        assert got.json()["pool"] == mine
    return mine


def gpus(maximum: int, in_use: int = 0) -> list[dict[str, Any]]:
    """Quota rows of a tenant that may have GPUs."""
    return [{"resource": "gpu", "max": maximum, "inUse": in_use}]


async def cluster(owner: World, pool_id: str, name: str = "lent") -> None:
    """A cluster whose array is filled from the pool."""
    await owner.add_cluster(name, NewArray("gpu", pool_id, owner.profile))


async def row_of(tenant: World, pool_id: str) -> QuotaRow:
    """The tenant's only quota row on a pool, seen or not."""
    mine = select(QuotaRow).where(QuotaRow.tenant_id == tenant.tenant, QuotaRow.pool_id == pool_id)
    return await tenant.one(mine)


async def create(api: Api, count: int, name: str = "lent") -> dict[str, Any]:
    """What a create of nodes answered."""
    answer = await api.create({"count": count, "nodearray": "gpu"}, cluster=name)
    assert answer.status_code == 202, answer.text
    body: dict[str, Any] = answer.json()
    return body


class TestOffer:
    async def test_b8_b91_b93_to_b98_the_tenant_sees_the_pool_with_its_quota(
        self, api: Api, world: World, guest: World
    ) -> None:
        pool_id = await shared_pool(api, world)
        theirs = of(api, guest)
        assert await seen(theirs, pool_id) is None
        answered = await offer(api, pool_id, guest.tenant, 16, priority=7, includeDescendants=True)
        assert (answered["owned"], answered["quotas"]) == (False, gpus(16))
        assert await seen(theirs, pool_id) == answered
        mine = await seen(api, pool_id)
        assert mine is not None
        assert (mine["owned"], mine["quotas"]) == (True, gpus(2_147_483_647))
        stored = await world.one(select(Offer).where(Offer.pool_id == pool_id))
        assert (stored.include_descendants, stored.priority) == (True, 7)

    async def test_b92_b94_b95_again_it_changes_the_offer_and_rows_it_leaves_out_stay(
        self, api: Api, world: World, guest: World
    ) -> None:
        pool_id = await shared_pool(api, world)
        await offer(api, pool_id, guest.tenant, 16)
        again = await offer(api, pool_id, guest.tenant, quota={"host": 2}, priority=-1_000)
        assert again["quotas"] == [*gpus(16), {"resource": "host", "max": 2, "inUse": 0}]
        assert (await offer(api, pool_id, guest.tenant, 8))["quotas"][0]["max"] == 8
        assert (await offer(api, pool_id, guest.tenant, quota={}))["quotas"][0]["max"] == 8
        assert await world.count(Offer, Offer.pool_id == pool_id) == 1

    async def test_b96_a_maximum_below_what_is_in_use_is_what_is_in_use(
        self, api: Api, world: World, guest: World
    ) -> None:
        pool_id = await shared_pool(api, world, 2)
        await offer(api, pool_id, guest.tenant, 16)
        await cluster(guest, pool_id)
        assert (await create(of(api, guest), 1))["sets"][0]["added"] == 1
        assert (await offer(api, pool_id, guest.tenant, 3))["quotas"] == gpus(8, 8)

    async def test_b9_b10_whoever_does_not_own_it_is_not_told_that_it_exists(
        self, api: Api, world: World, guest: World, database: Database
    ) -> None:
        pool_id = await shared_pool(api, world)
        stranger = await make_world(database)
        await offer(api, pool_id, guest.tenant)
        for other in (guest, stranger):
            calls: list[tuple[str, dict[str, Any]]] = [("pools.offer", {"quota": {}}), ("pools.unoffer", {})]
            for method, values in calls:
                answer = await of(api, other).fleet(
                    method, poolId=pool_id, toTenantId=stranger.tenant, **values
                )
                fleet_error(answer, 404, "NOT_FOUND")
        assert await world.count(Offer, Offer.pool_id == pool_id) == 1

    async def test_b20_b21_each_role_by_its_permission_and_what_is_not_seen_before_it(
        self, api: Api, world: World, guest: World
    ) -> None:
        pool_id = await shared_pool(api, world)
        for role in Role:
            mine = api.as_token(await world.token_for(role))
            allowed = role_allows(role, Permission.POOLS_SHARE)
            values = {"toTenantId": guest.tenant}
            for method, more in (("pools.offer", {"quota": {"gpu": 1}}), ("pools.unoffer", {})):
                answer = await mine.fleet(method, poolId=pool_id, **values, **more)
                assert answer.status_code == (200 if allowed else 403), (role, method)
                unknown = await mine.fleet(method, poolId=UNKNOWN, **values, **more)
                fleet_error(unknown, 404, "NOT_FOUND")

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("poolId", "pool_x"),  # B26
            ("toTenantId", ""),  # B25
            ("toTenantId", "a b"),
            ("toTenantId", None),
            ("quota", None),  # B38
            ("quota.gpu", {"gpu": -1}),  # B35
            ("quota.gpu", {"gpu": 2**31}),
            ("quota.gpu", {"gpu": 1.5}),
            ("quota.gpu", {"gpu": True}),
            ("includeDescendants", "yes"),  # B39
            ("includeDescendants", 1),
            ("priority", -1_001),  # B40
            ("priority", 1_001),
            ("priority", 1.5),
            ("prio", 1),
        ],
    )
    async def test_b25_b26_b35_b38_to_b40_input_has_its_form(
        self, api: Api, world: World, guest: World, field: str, value: object
    ) -> None:
        body: dict[str, Any] = {"poolId": world.pool_id, "toTenantId": guest.tenant, "quota": {"gpu": 1}}
        answer = await api.fleet("pools.offer", **{**body, field.partition(".")[0]: value})
        assert paths(fleet_error(answer, 400, "INVALID_INPUT")) == {field}

    @pytest.mark.parametrize("key", ["", "1gpu", "g pu", "x" * 65, "gpu/é", "__proto__", "a" + "\u202e"])
    async def test_b36_quota_keys_have_their_form(
        self, api: Api, world: World, guest: World, key: str
    ) -> None:
        answer = await api.fleet("pools.offer", poolId=world.pool_id, toTenantId=guest.tenant, quota={key: 1})
        error = fleet_error(answer, 400, "INVALID_INPUT")
        assert paths(error) == {f"quota.{key}"}
        assert "[A-Za-z][A-Za-z0-9._-]{0,63}" in error["message"]

    async def test_an_unknown_tenant_is_not_found(self, api: Api, world: World) -> None:
        pool_id = await shared_pool(api, world)
        answer = await api.fleet("pools.offer", poolId=pool_id, toTenantId="nobody", quota={})
        assert paths(fleet_error(answer, 404, "NOT_FOUND")) == {"toTenantId"}

    async def test_b99_an_archived_pool_is_not_offered(self, api: Api, world: World, guest: World) -> None:
        pool_id = await shared_pool(api, world)
        await world.set(Pool, Pool.id == pool_id, archived_at=Pool.created_at)
        answer = await api.fleet("pools.offer", poolId=pool_id, toTenantId=guest.tenant, quota={})
        fleet_error(answer, 409, "INVALID_STATE")

    @pytest.mark.parametrize("sharing", ["timeslice", "mps"])
    async def test_b100_b101_b103_what_is_shared_without_isolation_is_its_owners(
        self, api: Api, world: World, guest: World, sharing: str
    ) -> None:
        pool_id = await shared_pool(api, world)
        await world.set(Pool, Pool.id == pool_id, sharing=sharing)
        answer = await api.fleet("pools.offer", poolId=pool_id, toTenantId=guest.tenant, quota={})
        assert sharing in fleet_error(answer, 409, "INVALID_STATE")["message"]
        own = await offer(api, pool_id, world.tenant, quota={"gpu.slot": 96})
        assert own["owned"] is True
        assert own["quotas"][1] == {"resource": "gpu.slot", "max": 96, "inUse": 0}

    async def test_b102_b103_machines_that_a_tenant_owns_are_for_itself(
        self, api: Api, world: World, guest: World
    ) -> None:
        await world.machines(1)
        answer = await api.fleet(
            "pools.offer", poolId=world.pool_id, toTenantId=guest.tenant, quota={"gpu": 1}
        )
        assert "nodes that its tenant owns" in fleet_error(answer, 409, "INVALID_STATE")["message"]
        own = await offer(api, world.pool_id, world.tenant, 24)
        assert (own["owned"], own["quotas"]) == (True, gpus(24))
        assert await world.count(Offer, Offer.pool_id == world.pool_id) == 0

    async def test_b102_nor_are_they_put_into_a_pool_that_is_offered(
        self, api: Api, world: World, guest: World
    ) -> None:
        other = (
            await api.fleet(
                "pools.create", siteId=world.site_id, **{"class": "metal-host", "gpuModel": "H200"}
            )
        ).json()["pool"]["id"]
        await offer(api, other, guest.tenant)
        machines = await world.machines(1)
        answer = await api.fleet("nodes.assignPool", poolId=other, nodeIds=machines)
        assert "offered to other tenants" in fleet_error(answer, 409, "INVALID_STATE")["message"]

    async def test_b104_to_b106_a_pool_for_one_tenant_goes_to_one(
        self, api: Api, world: World, guest: World, database: Database
    ) -> None:
        pool_id = await shared_pool(api, world)
        await world.set(Pool, Pool.id == pool_id, policy={"singleTenant": True})
        values = {"poolId": pool_id, "quota": {"gpu": 8}}
        wide = await api.fleet("pools.offer", toTenantId=guest.tenant, includeDescendants=True, **values)
        assert "includeDescendants" in fleet_error(wide, 409, "INVALID_STATE")["message"]
        await offer(api, pool_id, guest.tenant, 8)
        third = await make_world(database)
        second = await api.fleet("pools.offer", toTenantId=third.tenant, **values)
        assert "another one" in fleet_error(second, 409, "INVALID_STATE")["message"]
        assert (await offer(api, pool_id, guest.tenant, 16))["quotas"] == gpus(16)

    async def test_b107_the_projection_is_written_with_the_offer(
        self, api: Api, world: World, guest: World
    ) -> None:
        pool_id = await shared_pool(api, world)
        await offer(api, pool_id, guest.tenant)
        row = await world.one(
            select(Authorization).where(
                Authorization.tenant_id == guest.tenant, Authorization.object_id == pool_id
            )
        )
        assert (row.kind, row.owned, row.through) == ("pool", False, guest.tenant)
        assert row.attributes == {
            "gpuModel": "H200",
            "class": "metal-host",
            "sharing": "exclusive",
            "region": "north",
            "owned": False,
        }

    async def test_b108_b116_events_tell_what_was_done(self, api: Api, world: World, guest: World) -> None:
        pool_id = await shared_pool(api, world)
        await offer(api, pool_id, guest.tenant)
        for removed in (True, False):
            answer = await api.fleet("pools.unoffer", poolId=pool_id, toTenantId=guest.tenant)
            assert answer.json() == {"removed": removed}
        about = Event.subject == f"pool/{pool_id}"
        for kind, count in (("pool.created", 1), ("pool.offered", 1), ("pool.unoffered", 1)):
            assert await world.count(Event, about, Event.type == kind) == count, kind


class TestUse:
    async def test_the_tenant_creates_nodes_up_to_its_quota_on_the_owners_machine_types(
        self, api: Api, world: World, guest: World
    ) -> None:
        pool_id = await shared_pool(api, world, 3)
        await offer(api, pool_id, guest.tenant, 16)
        await cluster(guest, pool_id)
        theirs = of(api, guest)
        (array,) = (await theirs.status(cluster="lent"))["nodearrays"]
        (bucket,) = array["buckets"]
        assert (bucket["definition"]["machineType"], bucket["availableCount"]) == ("gpu8", 2)
        made = (await create(theirs, 3))["sets"][0]
        assert made["added"] == 2
        assert f"the quota for gpu in pool {pool_id} is 16, 0 were in use" in made["message"]
        assert (await seen(theirs, pool_id) or {})["quotas"] == gpus(16, 16)
        assert (await seen(api, pool_id) or {})["quotas"] == gpus(2_147_483_647)
        capacity = (await api.fleet("pools.capacity", poolId=pool_id)).json()["capacity"]
        counted = {row["resource"]: (row["total"], row["booked"], row["usable"]) for row in capacity}
        assert counted == {"gpu": (24, 16, 8), "host": (3, 2, 1)}

    async def test_what_is_given_back_counts_on_the_same_rows(
        self, api: Api, world: World, guest: World
    ) -> None:
        pool_id = await shared_pool(api, world, 1)
        await offer(api, pool_id, guest.tenant, 8)
        await cluster(guest, pool_id)
        theirs = of(api, guest)
        await create(theirs, 1)
        operation = (await theirs.terminate("lent", names=["gpu-1"])).json()["operationId"]
        run = await run_of(guest, operation)
        async with guest.database.begin() as session:
            await hand_over_node(session, run.id, card=None)
        assert (await seen(theirs, pool_id) or {})["quotas"] == gpus(8)

    async def test_the_owners_machines_are_not_the_tenants_to_see(
        self, api: Api, world: World, guest: World
    ) -> None:
        pool_id = await shared_pool(api, world, 1)
        await offer(api, pool_id, guest.tenant)
        theirs = of(api, guest)
        assert (await theirs.fleet("nodes.list", poolId=pool_id)).json()["items"] == []
        (machine,) = (await api.fleet("nodes.list", poolId=pool_id)).json()["items"]
        fleet_error(await theirs.fleet("nodes.get", nodeId=machine["id"]), 404, "NOT_FOUND")
        moved = await theirs.fleet("nodes.assignPool", poolId=pool_id, nodeIds=[machine["id"]])
        fleet_error(moved, 404, "NOT_FOUND")


class TestUnoffer:
    async def test_b109_b110_b112_b113_nothing_new_fits_and_the_pool_is_gone(
        self, api: Api, world: World, guest: World
    ) -> None:
        pool_id = await shared_pool(api, world, 3)
        await offer(api, pool_id, guest.tenant, 24)
        await cluster(guest, pool_id)
        theirs = of(api, guest)
        await create(theirs, 1)
        answer = await api.fleet("pools.unoffer", poolId=pool_id, toTenantId=guest.tenant)
        assert answer.json() == {"removed": True}
        assert await seen(theirs, pool_id) is None
        row = await world.one(
            select(QuotaRow).where(QuotaRow.tenant_id == guest.tenant, QuotaRow.pool_id == pool_id)
        )
        assert (row.maximum, row.in_use) == (8, 8)
        refused = (await create(theirs, 1))["sets"][0]
        assert refused["added"] == 0
        assert "the quota for gpu" in refused["message"]
        gone = await theirs.fleet("pools.capacity", poolId=pool_id)
        fleet_error(gone, 404, "NOT_FOUND")  # B90

    async def test_b111_what_is_held_is_kept_and_can_be_given_back(
        self, api: Api, world: World, guest: World
    ) -> None:
        pool_id = await shared_pool(api, world, 1)
        await offer(api, pool_id, guest.tenant, 8)
        await cluster(guest, pool_id)
        theirs = of(api, guest)
        await create(theirs, 1)
        await api.fleet("pools.unoffer", poolId=pool_id, toTenantId=guest.tenant)
        live = (Booking.pool_id == pool_id, Booking.released_at.is_(None))
        assert await world.count(Booking, *live) == 9
        assert (
            await world.count(Reservation, Reservation.pool_id == pool_id, Reservation.state == "active") == 1
        )
        operation = (await theirs.terminate("lent", names=["gpu-1"])).json()["operationId"]
        run = await run_of(guest, operation)
        async with guest.database.begin() as session:
            await hand_over_node(session, run.id, card=None)
        assert await world.count(Booking, *live) == 0
        row = await world.one(
            select(QuotaRow).where(QuotaRow.tenant_id == guest.tenant, QuotaRow.pool_id == pool_id)
        )
        assert row.in_use == 0

    async def test_b114_the_owner_is_not_offered_what_it_owns(self, api: Api, world: World) -> None:
        answer = await api.fleet("pools.unoffer", poolId=world.pool_id, toTenantId=world.tenant)
        assert paths(fleet_error(answer, 400, "INVALID_INPUT")) == {"toTenantId"}

    @pytest.mark.parametrize("known", [True, False])
    async def test_b115_nothing_to_withdraw_is_no_error(
        self, api: Api, world: World, guest: World, known: bool
    ) -> None:
        to = guest.tenant if known else "nobody"
        answer = await api.fleet("pools.unoffer", poolId=world.pool_id, toTenantId=to)
        assert answer.json() == {"removed": False}

    async def test_offered_again_a_row_begins_with_what_is_in_use(
        self, api: Api, world: World, guest: World
    ) -> None:
        """Also one that was not there while it was booked: the owner's own hosts need none."""
        site = await world.fetch("SELECT site_id FROM pools WHERE id = :id", id=world.pool_id)
        made = await api.fleet("pools.create", siteId=site, **{"class": "metal-host"})
        pool_id = made.json()["pool"]["id"]
        await world.machines(2, "cpu", pool_id=pool_id)
        await cluster(world, pool_id)
        assert (await create(api, 2))["sets"][0]["added"] == 2
        own = await offer(api, pool_id, world.tenant, quota={"host": 1})
        assert {"resource": "host", "max": 2, "inUse": 2} in own["quotas"]


class TestDescendants:
    async def test_they_see_it_with_the_ancestors_rows_which_their_use_counts_on(
        self, api: Api, world: World, guest: World
    ) -> None:
        theirs = of(api, guest)
        below = await child(theirs)
        deep = await child(theirs, below)
        pool_id = await shared_pool(api, world, 2)
        await offer(api, pool_id, guest.tenant, 16, includeDescendants=True)
        late = await child(theirs, deep)
        for tenant in (below, deep, late):
            mine = Api(api.client, guest.token, tenant)
            pool = await seen(mine, pool_id)
            assert pool is not None, tenant
            assert (pool["owned"], pool["quotas"]) == (False, gpus(16))
        async with world.database.begin() as session:
            (row,) = await quotas_of(session, late, [pool_id])
        assert row.tenant_id == guest.tenant

    async def test_without_being_included_they_do_not(self, api: Api, world: World, guest: World) -> None:
        theirs = of(api, guest)
        below = await child(theirs)
        pool_id = await shared_pool(api, world)
        await offer(api, pool_id, guest.tenant, includeDescendants=True)
        await offer(api, pool_id, guest.tenant, includeDescendants=False)
        late = await child(theirs)
        for tenant in (below, late):
            assert await seen(Api(api.client, guest.token, tenant), pool_id) is None
        assert await seen(theirs, pool_id) is not None

    async def test_an_offer_of_its_own_wins_and_its_end_gives_the_ancestors_back(
        self, api: Api, world: World, guest: World
    ) -> None:
        theirs = of(api, guest)
        below = await child(theirs)
        deep = await child(theirs, below)
        pool_id = await shared_pool(api, world)
        await offer(api, pool_id, guest.tenant, 16, includeDescendants=True)
        await offer(api, pool_id, below, 8)
        mine, deeper = (Api(api.client, guest.token, tenant) for tenant in (below, deep))
        assert (await seen(mine, pool_id) or {})["quotas"] == gpus(8)
        assert (await seen(deeper, pool_id) or {})["quotas"] == gpus(16)
        await offer(api, pool_id, below, 8, includeDescendants=True)
        assert (await seen(deeper, pool_id) or {})["quotas"] == gpus(8), "the nearest counts"
        await api.fleet("pools.unoffer", poolId=pool_id, toTenantId=below)
        for one in (mine, deeper):
            assert (await seen(one, pool_id) or {})["quotas"] == gpus(16)
        await api.fleet("pools.unoffer", poolId=pool_id, toTenantId=guest.tenant)
        for one in (theirs, mine, deeper):
            assert await seen(one, pool_id) is None

    async def test_tenants_made_while_it_is_offered_all_see_it(
        self, api: Api, world: World, guest: World
    ) -> None:
        theirs = of(api, guest)
        pool_id = await shared_pool(api, world)
        made, *_ = await asyncio.gather(
            asyncio.gather(*(child(theirs) for _ in range(10))),
            *(offer(api, pool_id, guest.tenant, includeDescendants=True) for _ in range(5)),
        )
        for tenant in made:
            assert await seen(Api(api.client, guest.token, tenant), pool_id) is not None


class TestRaces:
    async def test_creates_of_two_tenants_and_offers_end_with_rows_that_match_the_bookings(
        self, api: Api, world: World, guest: World
    ) -> None:
        pool_id = await shared_pool(api, world, 6)
        await offer(api, pool_id, guest.tenant, 48)
        await cluster(guest, pool_id)
        await cluster(world, pool_id, "own")
        theirs = of(api, guest)
        await asyncio.gather(
            *(create(theirs, 1) for _ in range(5)),
            *(create(api, 1, "own") for _ in range(5)),
            *(offer(api, pool_id, guest.tenant, size) for size in (8, 48, 16)),
            api.fleet("pools.unoffer", poolId=pool_id, toTenantId=guest.tenant),
        )
        rows = await world.fetch(
            """
            SELECT json_object_agg(tenant_id, in_use) FROM quotas
            WHERE pool_id = :pool AND resource = 'gpu'
            """,
            pool=pool_id,
        )
        for tenant in (world, guest):
            booked = await world.count(
                Booking,
                Booking.pool_id == pool_id,
                Booking.tenant_id == tenant.tenant,
                Booking.resource == "gpu",
                Booking.released_at.is_(None),
            )
            assert rows[tenant.tenant] == booked
        assert await world.count(Booking, Booking.pool_id == pool_id, Booking.released_at.is_(None)) <= 54
