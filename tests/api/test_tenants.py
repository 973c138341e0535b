"""Tenants and tokens over HTTP: the tree, what a role and a scope give, and how a token ends."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from database.tables import Event, Tenant, Token
from database.tenants import MOST_ANCESTORS
from domain.permissions import Role, Scope
from tests.api.client import Api, fleet_error, paths
from tests.database.world import World


def fresh() -> str:
    """The name of a tenant that there is not yet."""
    return f"t-{uuid.uuid4().hex[:12]}"


async def child(api: Api, parent: str | None = None) -> str:
    """A new tenant below another one."""
    answer = await api.fleet("tenants.create", name=fresh(), parentTenantId=parent or api.tenant)
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()["tenant"]
    return str(made["id"])


async def token(api: Api, tenant: str, role: Role = Role.OWNER, **values: Any) -> dict[str, Any]:
    """The answer of tokens.create."""
    answer = await api.fleet("tokens.create", tenantId=tenant, principal="someone", role=role, **values)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def member(api: Api, tenant: str, role: Role = Role.OWNER, **values: Any) -> Api:
    """The API as somebody of a tenant sees it."""
    return Api(api.client, (await token(api, tenant, role, **values))["text"], tenant)


class TestTree:
    async def test_who_belongs_to_a_tenant_acts_for_those_below_and_for_no_other(
        self, api: Api, world: World
    ) -> None:
        left, right = await child(api), await child(api)
        below = await child(api, left)
        owner = await member(api, left)
        for tenant in (left, below):
            assert (await owner.fleet("pools.list", tenantId=tenant)).json() == {"pools": []}
        for tenant in (world.tenant, right, fresh()):
            error = fleet_error(await owner.fleet("pools.list", tenantId=tenant), 404, "NOT_FOUND")
            assert paths(error) == {"tenantId"}
        site = await api.fleet("sites.create", tenantId=below, name="hall", region="r")
        assert site.json()["site"]["tenantId"] == below
        assert (await owner.fleet("sites.list", tenantId=below)).json()["items"] == [site.json()["site"]]

    async def test_a_role_is_the_same_below(self, api: Api) -> None:
        below = await child(api)
        viewer = await member(api, api.tenant, Role.VIEWER)
        assert (await viewer.fleet("sites.list", tenantId=below)).status_code == 200
        refused = await viewer.fleet("sites.create", tenantId=below, name="s", region="r")
        fleet_error(refused, 403, "FORBIDDEN")

    async def test_the_list_is_the_tenant_and_all_below_it(self, api: Api, world: World) -> None:
        left = await child(api)
        below = await child(api, left)
        right = await child(api)
        listed = (await api.fleet("tenants.list", limit=2)).json()
        found = (
            listed["items"] + (await api.fleet("tenants.list", cursor=listed["nextCursor"])).json()["items"]
        )
        assert {one["id"]: one["parentTenantId"] for one in found} == {
            world.tenant: None,
            left: world.tenant,
            right: world.tenant,
            below: left,
        }
        owner = await member(api, left)
        mine = (await owner.fleet("tenants.list")).json()["items"]
        assert {one["id"] for one in mine} == {left, below}

    async def test_a_parent_must_be_within_reach(self, api: Api, world: World) -> None:
        left = await child(api)
        owner = await member(api, left)
        for parent in (world.tenant, fresh()):
            answer = await owner.fleet("tenants.create", name=fresh(), parentTenantId=parent)
            assert paths(fleet_error(answer, 404, "NOT_FOUND")) == {"parentTenantId"}

    async def test_a_root_is_made_by_the_fleets_administrators_only(self, api: Api, world: World) -> None:
        error = fleet_error(await api.fleet("tenants.create", name=fresh()), 403, "FORBIDDEN")
        assert "on the fleet" in error["message"]
        admin = api.as_token(await world.token_for(Role.FLEET_ADMIN))
        made = (await admin.fleet("tenants.create", name=fresh())).json()["tenant"]
        assert made["parentTenantId"] is None
        assert (await admin.fleet("tenants.list", tenantId=made["id"])).json()["items"] == [made]
        assert await world.count(Event, Event.subject == f"tenant/{made['id']}") == 1

    async def test_a_name_is_taken_once_in_the_whole_tree(self, api: Api, world: World) -> None:
        left = await child(api)
        for parent in (world.tenant, left):
            answer = await api.fleet("tenants.create", name=left, parentTenantId=parent)
            fleet_error(answer, 409, "CONFLICT")
        assert await world.count(Tenant, Tenant.id == left) == 1

    async def test_the_tree_has_a_bottom(self, api: Api) -> None:
        deepest = api.tenant
        for _ in range(MOST_ANCESTORS):
            deepest = await child(api, deepest)
        answer = await api.fleet("tenants.create", name=fresh(), parentTenantId=deepest)
        assert paths(fleet_error(answer, 400, "INVALID_INPUT")) == {"parentTenantId"}

    @pytest.mark.parametrize("name", ["", "a b", "x" * 129, "ü", 7, None])
    async def test_a_name_has_the_form_of_a_tenants_id(self, api: Api, name: object) -> None:
        answer = await api.fleet("tenants.create", name=name, parentTenantId=api.tenant)
        assert paths(fleet_error(answer, 400, "INVALID_INPUT")) == {"name"}


class TestTokens:
    async def test_the_text_is_shown_once_and_never_again(self, api: Api, world: World) -> None:
        made = await token(api, api.tenant, Role.VIEWER)
        record = made["token"]
        assert (record["state"], record["role"], record["createdBy"]) == ("live", "viewer", "tester")
        listed = await api.fleet("tokens.list")
        assert made["text"] not in listed.text
        assert record in listed.json()["items"]
        stored = await world.fetch("SELECT t::text FROM tokens t WHERE id = :id", id=record["id"])
        assert made["text"] not in stored
        about = f"token/{record['id']}"
        event = await world.fetch("SELECT e::text FROM events e WHERE subject = :about", about=about)
        assert "token.created" in event
        assert made["text"] not in event

    async def test_it_is_seen_in_use(self, api: Api) -> None:
        made = await token(api, api.tenant, Role.VIEWER)
        before = await self.shown(api, made)
        assert before["lastUsedAt"] is None
        assert (await api.as_token(made["text"]).fleet("pools.list")).status_code == 200
        assert (await self.shown(api, made))["lastUsedAt"] is not None

    async def shown(self, api: Api, made: dict[str, Any]) -> dict[str, Any]:
        """The token as it is listed."""
        items: list[dict[str, Any]] = (await api.fleet("tokens.list", principal="someone")).json()["items"]
        return next(one for one in items if one["id"] == made["token"]["id"])

    async def test_a_revoked_one_is_refused_at_once_in_both_apis(self, api: Api, world: World) -> None:
        made = await token(api, api.tenant)
        mine = api.as_token(made["text"])
        assert (await mine.get("/clusters/demo/status")).status_code == 200
        for _ in range(2):
            answer = await api.fleet("tokens.revoke", tokenId=made["token"]["id"])
            assert answer.json()["token"]["state"] == "revoked"
        fleet_error(await mine.fleet("pools.list"), 401, "UNAUTHENTICATED")
        assert (await mine.get("/clusters/demo/status")).status_code == 401
        events = Event.subject == f"token/{made['token']['id']}"
        assert await world.count(Event, events, Event.type == "token.revoked") == 1

    async def test_an_expired_one_is_refused_and_says_so_in_the_list(self, api: Api, world: World) -> None:
        soon = datetime.now(UTC) + timedelta(hours=1)
        made = await token(api, api.tenant, expiresAt=soon.isoformat())
        assert datetime.fromisoformat(made["token"]["expiresAt"]) == soon
        mine = api.as_token(made["text"])
        assert (await mine.fleet("pools.list")).status_code == 200
        past = datetime.now(UTC) - timedelta(seconds=1)
        await world.set(Token, Token.id == made["token"]["id"], expires_at=past)
        fleet_error(await mine.fleet("pools.list"), 401, "UNAUTHENTICATED")
        assert (await self.shown(api, made))["state"] == "expired"

    @pytest.mark.parametrize(
        ("value", "said"),
        [
            ("2001-01-01T00:00:00Z", "within the next 3,660 days"),
            ("2999-01-01T00:00:00Z", "within the next 3,660 days"),
            ("2030-01-01T00:00:00", "with its offset from UTC"),
            ("2030-01-01", "must be a time"),
            ("tomorrow", "must be a time"),
            (1893456000, "must be a time"),
            ("0001-01-01T00:00:00+23:59", "must be a time"),
        ],
    )
    async def test_an_end_has_its_form_and_bounds(self, api: Api, value: object, said: str) -> None:
        answer = await api.fleet("tokens.create", principal="p", role="viewer", expiresAt=value)
        error = fleet_error(answer, 400, "INVALID_INPUT")
        assert paths(error) == {"expiresAt"}
        assert said in error["message"]

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("role", "king"),
            ("role", 1),
            ("principal", ""),
            ("principal", "a b"),
            ("principal", "x" * 129),
            ("scope.poolId", {"poolId": "pool_x"}),
            ("scope.pool", {"pool": "x"}),
            ("scope", []),
        ],
    )
    async def test_bad_input_names_its_place(self, api: Api, field: str, value: object) -> None:
        values = {"principal": "p", "role": "viewer", field.partition(".")[0]: value}
        answer = await api.fleet("tokens.create", **values)
        assert paths(fleet_error(answer, 400, "INVALID_INPUT")) == {field}

    async def test_a_fleets_administrator_is_made_by_such_only(self, api: Api, world: World) -> None:
        values = {"principal": "p", "role": "fleet-admin"}
        fleet_error(await api.fleet("tokens.create", **values), 403, "FORBIDDEN")
        narrowed = Scope(tenant_id=world.tenant)
        for scope, status in ((Scope(), 200), (narrowed, 403)):
            admin = api.as_token(await world.token_for(Role.FLEET_ADMIN, scope=scope))
            assert (await admin.fleet("tokens.create", **values)).status_code == status

    async def test_another_tenants_token_is_not_found(self, api: Api, world: World) -> None:
        below = await child(api)
        theirs = (await token(api, below))["token"]["id"]
        fleet_error(await api.fleet("tokens.revoke", tokenId=theirs), 404, "NOT_FOUND")
        revoked = await api.fleet("tokens.revoke", tenantId=below, tokenId=theirs)
        assert revoked.json()["token"]["state"] == "revoked"


class TestScopes:
    async def test_one_tenant_of_the_tree(self, api: Api, world: World) -> None:
        left, right = await child(api), await child(api)
        below = await child(api, left)
        mine = api.as_token((await token(api, api.tenant, scope={"tenantId": left}))["text"])
        for tenant in (left, below):
            assert (await mine.fleet("pools.list", tenantId=tenant)).status_code == 200
        for tenant in (world.tenant, right):
            fleet_error(await mine.fleet("pools.list", tenantId=tenant), 404, "NOT_FOUND")
        # The cluster API names no tenant: it is the one that the token is for.
        assert (await mine.get("/clusters/demo/status")).status_code == 404

    async def test_a_narrowed_administrator_does_not_serve_the_fleet(self, api: Api, world: World) -> None:
        left = await child(api)
        admin = api.as_token(await world.token_for(Role.FLEET_ADMIN, scope=Scope(tenant_id=left)))
        fleet_error(await admin.fleet("pools.list", tenantId=world.tenant), 404, "NOT_FOUND")
        fleet_error(await admin.fleet("tenants.create", tenantId=left, name=fresh()), 403, "FORBIDDEN")

    async def test_one_pool_its_nodes_and_nothing_else(self, api: Api, world: World) -> None:
        values = {"siteId": world.site_id, "class": "metal-host", "gpuModel": "H200"}
        other = (await api.fleet("pools.create", **values)).json()["pool"]["id"]
        (inside,) = await world.machines(1)
        (outside,) = await world.machines(1, pool_id=other)
        mine = api.as_token((await token(api, api.tenant, scope={"poolId": world.pool_id}))["text"])
        pools = (await mine.fleet("pools.list")).json()["pools"]
        assert [one["id"] for one in pools] == [world.pool_id]
        nodes = (await mine.fleet("nodes.list")).json()["items"]
        assert [one["id"] for one in nodes] == [inside]
        assert (await mine.fleet("nodes.list", poolId=other)).json()["items"] == []
        assert (await mine.fleet("pools.get", poolId=world.pool_id)).status_code == 200
        assert (await mine.fleet("nodes.get", nodeId=inside)).status_code == 200
        for method, asked in (
            ("pools.get", {"poolId": other}),
            ("nodes.get", {"nodeId": outside}),
            ("pools.create", values),
            ("sites.list", {}),
            ("tokens.list", {}),
            ("tokens.create", {"principal": "p", "role": "viewer"}),
            ("clusters.list", {}),
            ("operations.list", {}),
        ):
            error = fleet_error(await mine.fleet(method, **asked), 403, "FORBIDDEN")
            assert error["message"] == f"the token is for pool {world.pool_id} only"
        assert (await mine.get("/clusters/demo/status")).status_code == 403

    async def test_what_it_names_must_be_within_reach(self, api: Api, world: World) -> None:
        below = await child(api)
        owner = await member(api, below)
        for scope in ({"tenantId": world.tenant}, {"tenantId": fresh()}, {"poolId": world.pool_id}):
            answer = await owner.fleet("tokens.create", principal="p", role="viewer", scope=scope)
            fleet_error(answer, 404, "NOT_FOUND")
