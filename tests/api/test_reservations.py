"""reservations.create, release, get, list: what is booked where, and which limit refuses."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from database.tables import Booking, Event, Machine, Node, Pool, QuotaRow, Reservation
from database.unit_of_work import Database
from domain.permissions import Permission, Role, Scope, role_allows
from tests.api.client import Api, fleet_error, paths
from tests.api.test_offers import of, offer, shared_pool
from tests.database.world import World, make_world


async def ask(api: Api, pool_id: str, **values: Any) -> httpx.Response:
    """Asks for resources of a pool."""
    fields = {name: values.pop(name) for name in ("expiresAt", "idempotencyKey") if name in values}
    return await api.fleet("reservations.create", poolId=pool_id, resources=values, **fields)


async def reserve(api: Api, pool_id: str, **values: Any) -> dict[str, Any]:
    """A reservation that must be made."""
    answer = await ask(api, pool_id, **values)
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()["reservation"]
    return made


def held(reservation: dict[str, Any]) -> dict[str, int]:
    """How many GPUs it holds on each machine."""
    machines = [one["nodeId"] for one in reservation["bookings"] if one["resource"] == "gpu"]
    return {machine: machines.count(machine) for machine in machines}


async def in_use(world: World, pool_id: str | None = None) -> int:
    """What is counted on the tenant's GPU row."""
    used: int = await world.fetch(
        "SELECT in_use FROM quotas WHERE pool_id = :pool AND tenant_id = :tenant AND resource = 'gpu'",
        pool=pool_id or world.pool_id,
        tenant=world.tenant,
    )
    return used


class TestCreate:
    async def test_gpus_fill_machines_one_after_the_other(self, api: Api, world: World) -> None:
        await world.machines(3)
        first = await reserve(api, world.pool_id, gpu=5)
        second = await reserve(api, world.pool_id, gpu=2)
        third = await reserve(api, world.pool_id, gpu=4)
        assert list(held(first).values()) == [5]
        assert held(second) == {next(iter(held(first))): 2}
        assert sorted(held(third).values()) == [1, 3]
        numbers = [(one["nodeId"], one["number"]) for r in (first, second, third) for one in r["bookings"]]
        assert len(set(numbers)) == len(numbers) == 11
        assert (first["state"], first["resources"], first["createdBy"]) == ("active", {"gpu": 5}, "tester")
        assert await in_use(world) == 11

    async def test_a_host_is_every_gpu_of_a_machine_of_which_nothing_is_booked(
        self, api: Api, world: World
    ) -> None:
        await world.machines(2)
        (begun,) = held(await reserve(api, world.pool_id, gpu=1))
        whole = await reserve(api, world.pool_id, host=1)
        assert list(held(whole).values()) == [8]
        assert begun not in held(whole)
        assert [one["resource"] for one in whole["bookings"]].count("host") == 1
        assert await in_use(world) == 9, "a machine with GPUs counts as its GPUs"
        error = fleet_error(await ask(api, world.pool_id, host=1), 409, "NO_CAPACITY")
        assert "had 0 of host free at 20" in error["message"]

    async def test_hosts_and_gpus_together_are_on_machines_of_their_own(self, api: Api, world: World) -> None:
        await world.machines(2)
        made = await reserve(api, world.pool_id, host=1, gpu=3)
        assert sorted(held(made).values()) == [3, 8]

    async def test_machines_without_gpus_count_as_hosts(self, api: Api, world: World) -> None:
        answer = await api.fleet(
            "pools.create", siteId=world.site_id, ownerQuota={"host": 1}, **{"class": "metal-host"}
        )
        pool_id = answer.json()["pool"]["id"]
        await world.machines(2, "cpu", pool_id=pool_id)
        await reserve(api, pool_id, host=1)
        error = fleet_error(await ask(api, pool_id, host=1), 409, "QUOTA_EXCEEDED")
        assert f"the quota for host in pool {pool_id} is 1, of which 0 were left at 20" in error["message"]

    async def test_a_refusal_names_the_limit_that_binds_and_books_nothing(
        self, api: Api, world: World
    ) -> None:
        await world.machines(1)
        await offer(api, world.pool_id, world.tenant, 4)
        over = fleet_error(await ask(api, world.pool_id, gpu=5), 409, "QUOTA_EXCEEDED")
        assert "is 4, of which 4 were left" in over["message"]
        assert "5 are needed" in over["message"]
        fleet_error(await ask(api, world.pool_id, host=1), 409, "QUOTA_EXCEEDED")
        await offer(api, world.pool_id, world.tenant, 100)
        none = fleet_error(await ask(api, world.pool_id, gpu=9), 409, "NO_CAPACITY")
        assert "had 8 of gpu free at 20" in none["message"]
        assert await world.count(Reservation, Reservation.pool_id == world.pool_id) == 0
        assert await in_use(world) == 0

    async def test_b62_without_a_row_nothing_can_be_had(self, api: Api, world: World) -> None:
        await world.machines(1)
        await world.set(QuotaRow, QuotaRow.pool_id == world.pool_id, resource="other")
        fleet_error(await ask(api, world.pool_id, gpu=1), 409, "QUOTA_EXCEEDED")

    @pytest.mark.parametrize(
        "values",
        [
            {"state": "cleaning"},
            {"state": "failed"},
            {"cordons": ["someone"]},
            {"quarantined": True},
            {"mismatched": True},
        ],
        ids=str,
    )
    async def test_machines_that_are_held_back_are_not_booked(
        self, api: Api, world: World, values: dict[str, Any]
    ) -> None:
        await world.machines(1, **values)
        fleet_error(await ask(api, world.pool_id, gpu=1), 409, "NO_CAPACITY")
        fleet_error(await ask(api, world.pool_id, host=1), 409, "NO_CAPACITY")

    async def test_an_archived_pool_takes_nothing_new(self, api: Api, world: World) -> None:
        await world.machines(1)
        await world.set(Pool, Pool.id == world.pool_id, archived_at=datetime.now(UTC))
        fleet_error(await ask(api, world.pool_id, gpu=1), 409, "INVALID_STATE")

    @pytest.mark.parametrize(
        ("field", "values"),
        [
            ("resources", {"resources": {}}),
            ("resources", {"resources": [1]}),
            ("resources.gpus", {"resources": {"gpus": 1}}),
            ("resources.gpu", {"resources": {"gpu": 0}}),
            ("resources.gpu", {"resources": {"gpu": 1_000_001}}),
            ("resources.gpu", {"resources": {"gpu": 1.5}}),
            ("poolId", {"poolId": "pool_x"}),
            ("expiresAt", {"expiresAt": "soon"}),
            ("expiresAt", {"expiresAt": "2001-01-01T00:00:00Z"}),
            ("idempotencyKey", {"idempotencyKey": "a b"}),
            ("amount", {"amount": 1}),
        ],
    )
    async def test_bad_input_names_its_place(
        self, api: Api, world: World, field: str, values: dict[str, Any]
    ) -> None:
        body: dict[str, Any] = {"poolId": world.pool_id, "resources": {"gpu": 1}}
        answer = await api.fleet("reservations.create", **{**body, **values})
        assert paths(fleet_error(answer, 400, "INVALID_INPUT")) == {field}

    async def test_its_end_is_told_as_it_was_asked_for(self, api: Api, world: World) -> None:
        await world.machines(1)
        soon = datetime.now(UTC) + timedelta(hours=1)
        made = await reserve(api, world.pool_id, gpu=1, expiresAt=soon.isoformat())
        assert datetime.fromisoformat(made["expiresAt"]) == soon

    async def test_a_retry_by_key_answers_the_stored_one(self, api: Api, world: World) -> None:
        await world.machines(1)
        first = await reserve(api, world.pool_id, gpu=2, idempotencyKey="k")
        assert await reserve(api, world.pool_id, gpu=2, idempotencyKey="k") == first
        fleet_error(await ask(api, world.pool_id, gpu=3, idempotencyKey="k"), 409, "CONFLICT")
        racing = await asyncio.gather(
            *(reserve(api, world.pool_id, gpu=1, idempotencyKey="race") for _ in range(10))
        )
        assert len({one["id"] for one in racing}) == 1
        assert await in_use(world) == 3


class TestEnd:
    async def test_what_was_held_is_given_back_once(self, api: Api, world: World) -> None:
        await world.machines(1)
        made = await reserve(api, world.pool_id, host=1)
        for _ in range(2):
            answer = await api.fleet("reservations.release", reservationId=made["id"])
            ended = answer.json()["reservation"]
            assert (ended["state"], ended["endedBy"]) == ("ended", "tester")
            assert ended["bookings"] == made["bookings"], "what it held is still told"
        assert await in_use(world) == 0
        assert list(held(await reserve(api, world.pool_id, host=1)).values()) == [8]
        about = Event.subject == f"reservation/{made['id']}"
        assert await world.count(Event, about, Event.type == "reservation.ended") == 1

    async def test_a_cluster_nodes_ends_with_its_node_only(self, api: Api, world: World) -> None:
        await world.machines(1)
        await api.create({"count": 1, "nodearray": "gpu"})
        (mine,) = (await api.fleet("reservations.list")).json()["items"]
        (node,) = await api.nodes()
        assert mine["clusterNodeId"] == node["NodeId"]
        refused = await api.fleet("reservations.release", reservationId=mine["id"])
        assert "terminated" in fleet_error(refused, 409, "INVALID_STATE")["message"]
        assert await world.count(Node, Node.reservation_id == mine["id"]) == 1
        assert await in_use(world) == 8

    async def test_it_survives_whatever_becomes_of_the_machine(self, api: Api, world: World) -> None:
        (machine,) = await world.machines(1)
        made = await reserve(api, world.pool_id, gpu=3)
        await world.set(Machine, Machine.id == machine, cordons=["someone"], state="failed")
        got = await api.fleet("reservations.get", reservationId=made["id"])
        assert got.json()["reservation"] == made
        await api.fleet("reservations.release", reservationId=made["id"])
        assert await in_use(world) == 0


class TestList:
    async def test_by_pool_and_state_in_pages(self, api: Api, world: World) -> None:
        await world.machines(1)
        made = [await reserve(api, world.pool_id, gpu=1) for _ in range(3)]
        await api.fleet("reservations.release", reservationId=made[0]["id"])
        first = (await api.fleet("reservations.list", limit=2)).json()
        rest = (await api.fleet("reservations.list", cursor=first["nextCursor"])).json()
        assert [one["id"] for one in first["items"] + rest["items"]] == [one["id"] for one in made]
        active = (await api.fleet("reservations.list", state="active", poolId=world.pool_id)).json()["items"]
        assert [one["id"] for one in active] == [one["id"] for one in made[1:]]
        other = "pool_" + "0" * 26
        assert (await api.fleet("reservations.list", poolId=other)).json()["items"] == []


class TestWho:
    async def test_each_role_by_its_permission(self, api: Api, world: World) -> None:
        await world.machines(2)
        made = await reserve(api, world.pool_id, gpu=1)
        for role in Role:
            mine = api.as_token(await world.token_for(role))
            create = role_allows(role, Permission.RESERVATIONS_CREATE)
            for method, values, allowed in (
                ("reservations.list", {}, True),
                ("reservations.get", {"reservationId": made["id"]}, True),
                ("reservations.create", {"poolId": world.pool_id, "resources": {"gpu": 1}}, create),
                ("reservations.release", {"reservationId": made["id"]}, create),
            ):
                answer = await mine.fleet(method, **values)
                assert answer.status_code == (200 if allowed else 403), (role, method)

    async def test_another_tenants_is_not_found(self, api: Api, world: World, database: Database) -> None:
        await world.machines(1)
        made = await reserve(api, world.pool_id, gpu=1)
        other = of(api, await make_world(database))
        for method in ("reservations.get", "reservations.release"):
            fleet_error(await other.fleet(method, reservationId=made["id"]), 404, "NOT_FOUND")
        fleet_error(await ask(other, world.pool_id, gpu=1), 404, "NOT_FOUND")
        assert (await other.fleet("reservations.list")).json()["items"] == []

    async def test_a_pools_token_is_for_what_is_booked_in_it(self, api: Api, world: World) -> None:
        other = await shared_pool(api, world, 1)
        await world.machines(1)
        inside, outside = await reserve(api, world.pool_id, gpu=1), await reserve(api, other, gpu=1)
        mine = api.as_token(await world.token_for(Role.OWNER, scope=Scope(pool_id=world.pool_id)))
        listed = (await mine.fleet("reservations.list")).json()["items"]
        assert [one["id"] for one in listed] == [inside["id"]]
        await reserve(mine, world.pool_id, gpu=1)
        fleet_error(await ask(mine, other, gpu=1), 403, "FORBIDDEN")
        refused = await mine.fleet("reservations.release", reservationId=outside["id"])
        fleet_error(refused, 403, "FORBIDDEN")

    async def test_who_is_offered_the_pool_books_on_its_quota(
        self, api: Api, world: World, database: Database
    ) -> None:
        pool_id = await shared_pool(api, world, 2)
        guest = await make_world(database)
        await offer(api, pool_id, guest.tenant, 8)
        theirs = of(api, guest)
        made = await reserve(theirs, pool_id, gpu=6)
        assert (await in_use(guest, pool_id), await in_use(world, pool_id)) == (6, 0)
        fleet_error(await ask(theirs, pool_id, gpu=3), 409, "QUOTA_EXCEEDED")
        await api.fleet("pools.unoffer", poolId=pool_id, toTenantId=guest.tenant)
        fleet_error(await ask(theirs, pool_id, gpu=1), 404, "NOT_FOUND")
        released = await theirs.fleet("reservations.release", reservationId=made["id"])
        assert released.json()["reservation"]["state"] == "ended"
        assert await in_use(guest, pool_id) == 0


@pytest.mark.parametrize("number", range(10))
async def test_of_fifty_callers_for_the_last_machine_one_gets_it(api: Api, world: World, number: int) -> None:
    await world.machines(1)
    answers = await asyncio.gather(*(ask(api, world.pool_id, host=1) for _ in range(50)))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 49
    refused = [fleet_error(answer, 409, "NO_CAPACITY") for answer in answers if answer.status_code == 409]
    assert all(f"pool {world.pool_id} had 0 of host free" in error["message"] for error in refused)
    assert await in_use(world) == 8
    live = (Booking.pool_id == world.pool_id, Booking.released_at.is_(None))
    assert await world.count(Booking, *live) == 9
