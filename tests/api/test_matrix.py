"""Who may call what: every route × role × relation of the caller's tenant to what it asks about.

Denial never looks like emptiness: what a tenant may not see is NOT_FOUND, what a role may not do FORBIDDEN.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from database.tables import Pool, Tenant
from database.tokens import issue_token
from database.unit_of_work import Database
from domain.permissions import Permission, Role, role_allows
from tests.api.client import Api
from tests.api.test_offers import of, offer, shared_pool
from tests.api.test_tenants import fresh
from tests.database import decisions as made
from tests.database.world import CONTENT, World, make_world

_P = Permission
OWN, OFFERED, DESCENDANT, STRANGER = "own", "offered", "descendant", "stranger"


@dataclass
class Scene:
    """What the owner's tenant has, and that is asked about; things that a call uses up are made anew."""

    api: Api
    world: World
    pool: str
    operation: str
    step: int
    archived: bool
    serial: int = 0

    def unused(self) -> str:
        """A name that nothing has yet."""
        self.serial += 1
        return f"n{self.serial}"

    async def machine(self) -> str:
        """A machine of the tenant's own pool."""
        return (await self.world.machines(1))[0]

    async def reservation(self) -> str:
        """A reservation of the owner's."""
        await self.world.machines(1)
        body = {"poolId": self.world.pool_id, "resources": {"gpu": 1}}
        answer = await self.api.fleet("reservations.create", **body)
        return str(answer.json()["reservation"]["id"])

    async def token(self) -> str:
        """A token of the owner's tenant."""
        async with self.world.database.begin() as session:
            token, _ = await issue_token(
                session, tenant_id=self.world.tenant, principal="someone", role=Role.VIEWER
            )
        return token.id

    async def held(self) -> str:
        """An operation that waits for a person."""
        return str(await made.held_create(self.world))

    async def failed(self) -> str:
        """An operation that can be retried."""
        operation_id = await made.created_nodes(self.world, 1)
        await made.cancel(self.world, operation_id)
        return str(operation_id)

    async def pending(self) -> str:
        """An operation that can be cancelled."""
        return str(await made.created_nodes(self.world, 1))


Body = Callable[[Scene], Awaitable[dict[str, Any]]]


@dataclass(frozen=True)
class Case:
    """One route. `names`: the body names something of the owner's; `lent`: an offered tenant sees it, too."""

    permission: Permission
    body: Body
    names: bool = True
    lent: bool = False
    # What the owner gets where its pool is archived, and it may ask.
    archived: int = 200


def case(permission: Permission, values: Callable[[Scene], dict[str, Any]], **more: Any) -> Case:
    """A case whose body needs nothing made."""

    async def body(scene: Scene) -> dict[str, Any]:
        return values(scene)

    return Case(permission, body, **more)


def with_id(field: str, make: Callable[[Scene], Awaitable[str]], **more: Any) -> Body:
    """A body that names a thing that was just made."""

    async def body(scene: Scene) -> dict[str, Any]:
        return {field: await make(scene), **more}

    return body


async def _assign(scene: Scene) -> dict[str, Any]:
    return {"poolId": scene.world.pool_id, "nodeIds": [await scene.machine()]}


def _joining(scene: Scene) -> dict[str, Any]:
    return {
        "siteId": scene.world.site_id,
        "address": f"{scene.unused()}.{scene.world.tenant}.test",
        "keySecret": "secret://file/key",
        "machineType": "gpu8",
    }


FLEET: dict[str, Case] = {
    "tenants.create": case(_P.TENANTS_MANAGE, lambda s: {"name": fresh(), "parentTenantId": s.world.tenant}),
    "tenants.list": case(_P.TENANTS_READ, lambda s: {}, names=False),
    "tokens.create": case(_P.TOKENS_MANAGE, lambda s: {"principal": "p", "role": "viewer"}, names=False),
    "tokens.list": case(_P.TOKENS_MANAGE, lambda s: {}, names=False),
    "tokens.revoke": Case(_P.TOKENS_MANAGE, with_id("tokenId", Scene.token)),
    "sites.create": case(_P.SITES_CREATE, lambda s: {"name": s.unused(), "region": "r"}, names=False),
    "sites.get": case(_P.SITES_READ, lambda s: {"siteId": s.world.site_id}),
    "sites.list": case(_P.SITES_READ, lambda s: {}, names=False),
    "machineTypes.create": case(
        _P.MACHINE_TYPES_MANAGE, lambda s: {"name": s.unused(), "vcpu": 1, "memoryGb": 1}, names=False
    ),
    "machineTypes.get": case(_P.MACHINE_TYPES_READ, lambda s: {"name": "matrix"}),
    "machineTypes.list": case(_P.MACHINE_TYPES_READ, lambda s: {}, names=False),
    "pools.create": case(_P.POOLS_CREATE, lambda s: {"siteId": s.world.site_id, "class": "metal-host"}),
    "pools.get": case(_P.POOLS_READ, lambda s: {"poolId": s.pool}, lent=True),
    "pools.list": case(_P.POOLS_READ, lambda s: {}, names=False),
    "pools.capacity": case(_P.CAPACITY_READ, lambda s: {"poolId": s.pool}, lent=True),
    "capacity.byPool": case(_P.CAPACITY_READ, lambda s: {"poolId": s.pool}, lent=True),
    "pools.offer": case(
        _P.POOLS_SHARE,
        lambda s: {"poolId": s.pool, "toTenantId": s.world.tenant, "quota": {}},
        archived=409,
    ),
    "pools.unoffer": case(_P.POOLS_SHARE, lambda s: {"poolId": s.pool, "toTenantId": "nobody"}),
    "reservations.create": case(
        _P.RESERVATIONS_CREATE,
        lambda s: {"poolId": s.pool, "resources": {"gpu": 1}},
        lent=True,
        archived=409,
    ),
    "reservations.get": Case(_P.RESERVATIONS_READ, with_id("reservationId", Scene.reservation)),
    "reservations.release": Case(_P.RESERVATIONS_CREATE, with_id("reservationId", Scene.reservation)),
    "reservations.list": case(_P.RESERVATIONS_READ, lambda s: {}, names=False),
    "nodes.join": case(_P.NODES_MANAGE, _joining),
    "nodes.get": Case(_P.NODES_READ, with_id("nodeId", Scene.machine)),
    "nodes.list": case(_P.NODES_READ, lambda s: {}, names=False),
    "nodes.assignPool": Case(_P.POOLS_MANAGE, _assign),
    "profiles.create": case(
        _P.PROFILES_WRITE, lambda s: {"name": s.unused(), "content": CONTENT}, names=False
    ),
    "profiles.get": case(_P.PROFILES_READ, lambda s: {"profileId": s.world.profile_id}),
    "profiles.list": case(_P.PROFILES_READ, lambda s: {}, names=False),
    "profiles.getVersion": case(_P.PROFILES_READ, lambda s: {"profileId": s.world.profile_id, "number": 1}),
    "profiles.createVersion": case(
        _P.PROFILES_WRITE, lambda s: {"profileId": s.world.profile_id, "content": CONTENT}
    ),
    "profiles.updateVersion": case(
        _P.PROFILES_WRITE, lambda s: {"profileId": s.world.profile_id, "number": 1, "content": CONTENT}
    ),
    "clusters.create": case(
        _P.CLUSTERS_MANAGE, lambda s: {"name": s.unused(), "nodeArrays": []}, names=False
    ),
    "clusters.get": case(_P.CLUSTERS_READ, lambda s: {"name": "matrix"}),
    "clusters.list": case(_P.CLUSTERS_READ, lambda s: {}, names=False),
    "operations.get": case(_P.OPERATIONS_READ, lambda s: {"operationId": s.operation}),
    "operations.list": case(_P.OPERATIONS_READ, lambda s: {}, names=False),
    "operations.steps": case(_P.OPERATIONS_READ, lambda s: {"operationId": s.operation}),
    "operations.logs": case(_P.OPERATIONS_READ, lambda s: {"stepRunId": s.step}),
    "operations.cancel": Case(_P.OPERATIONS_OPERATE, with_id("operationId", Scene.pending)),
    "operations.retry": Case(_P.OPERATIONS_OPERATE, with_id("operationId", Scene.failed)),
    "operations.resume": Case(_P.OPERATIONS_OPERATE, with_id("operationId", Scene.held)),
    "operations.abort": Case(_P.OPERATIONS_OPERATE, with_id("operationId", Scene.held)),
}


async def _cancel_path(scene: Scene) -> str:
    return f"/operations/{await scene.pending()}/cancel"


async def _path(text: str) -> str:
    return text


@dataclass(frozen=True)
class Route:
    """One route of the cluster API, which acts for the token's own tenant."""

    permission: Permission
    path: Callable[[Scene], Awaitable[str]]
    body: dict[str, Any] | None = None
    status: int = 200
    names: bool = True


CLUSTER: dict[str, Route] = {
    "GET /clusters/{cluster}/nodes": Route(_P.CLUSTERS_READ, lambda s: _path("/clusters/matrix/nodes")),
    "GET /clusters/{cluster}/status": Route(_P.CLUSTERS_READ, lambda s: _path("/clusters/matrix/status")),
    "POST /clusters/{cluster}/nodes/create": Route(
        _P.CLUSTERS_OPERATE,
        lambda s: _path("/clusters/matrix/nodes/create"),
        {"sets": [{"count": 1, "nodearray": "gpu"}]},
        202,
    ),
    "POST /clusters/{cluster}/nodes/terminate": Route(
        _P.CLUSTERS_OPERATE, lambda s: _path("/clusters/matrix/nodes/terminate"), {"names": ["x"]}, 202
    ),
    "GET /operations/": Route(_P.CLUSTERS_READ, lambda s: _path("/operations/"), names=False),
    "GET /operations/{operation}": Route(_P.CLUSTERS_READ, lambda s: _path(f"/operations/{s.operation}")),
    "POST /operations/{operation}/cancel": Route(_P.CLUSTERS_OPERATE, _cancel_path, {}, 202),
}


def test_every_route_is_in_the_tables(app: FastAPI) -> None:
    served = {
        f"{verb.upper()} {path}" for path, verbs in app.openapi()["paths"].items() for verb in verbs
    } - {"GET /healthz"}
    methods = {f"POST /api/compute/{name.replace('.', '/')}" for name in FLEET}
    assert served == methods | set(CLUSTER)


@pytest_asyncio.fixture(params=["live", "archived"], scope="module", loop_scope="session")
async def scene(request: pytest.FixtureRequest, app: FastAPI, database: Database) -> AsyncIterator[Scene]:
    """Everything that is asked about; with its pool archived in one of two runs."""
    world = await make_world(database)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://api.test", timeout=60) as client:
        api = Api(client, world.token, world.tenant)
        pool = await shared_pool(api, world, 8)
        answer = await api.fleet("machineTypes.create", name="matrix", vcpu=1, memoryGb=1)
        assert answer.status_code == 200, answer.text
        array = {"name": "gpu", "poolId": world.pool_id, "profile": world.profile}
        answer = await api.fleet("clusters.create", name="matrix", nodeArrays=[array])
        assert answer.status_code == 200, answer.text
        operation_id = await made.created_nodes(world, 1)
        run = next(iter((await made.runs_of(world, operation_id)).values()))
        await made.worked(world, run, 1)
        step = await world.fetch("SELECT min(id) FROM step_runs WHERE run_id = :run", run=run.id)
        archived = request.param == "archived"
        if archived:
            await world.set(Pool, Pool.id == pool, archived_at=datetime.now(UTC))
        yield Scene(api, world, pool, str(operation_id), step, archived)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def others(scene: Scene, database: Database) -> dict[str, World]:
    """Tenants by their relation to the owner's; each with what a tenant needs to ask at all."""
    found = {name: await make_world(database) for name in (OFFERED, STRANGER, DESCENDANT)}
    if not scene.archived:
        await offer(scene.api, scene.pool, found[OFFERED].tenant, 8)
    above = scene.world.tenant
    await scene.world.set(Tenant, Tenant.id == found[DESCENDANT].tenant, parent_id=above, ancestors=[above])
    return found


async def status_of(answer: httpx.Response) -> tuple[int, str]:
    """The status, and the error's code of the fleet's or the cluster's form."""
    body = answer.json() if answer.content else {}
    error = body.get("error") if isinstance(body, dict) else None
    code = (error or {}).get("code") or (body.get("code") if isinstance(body, dict) else None)
    return answer.status_code, code or ""


@pytest.mark.parametrize("method", FLEET)
async def test_the_owners_tenant_by_role(scene: Scene, method: str) -> None:
    asked = FLEET[method]
    for role in Role:
        mine = scene.api.as_token(await scene.world.token_for(role))
        answer = await mine.fleet(method, **await asked.body(scene))
        if not role_allows(role, asked.permission):
            assert await status_of(answer) == (403, "FORBIDDEN"), role
        elif method == "profiles.updateVersion":
            # It is used since the scene was made; who may is told so.
            assert await status_of(answer) == (409, "INVALID_STATE"), role
        else:
            expected = asked.archived if scene.archived else 200
            assert answer.status_code == expected, (role, answer.text)


@pytest.mark.parametrize("method", FLEET)
async def test_other_tenants_by_relation_and_role(
    scene: Scene, others: dict[str, World], method: str
) -> None:
    asked = FLEET[method]
    for relation, world in others.items():
        for role in Role:
            mine = Api(scene.api.client, await world.token_for(role), world.tenant)
            answer = await mine.fleet(method, **await asked.body(scene))
            allowed = role_allows(role, asked.permission)
            lent = asked.lent and relation == OFFERED and not scene.archived
            expected = {(200, "")} if allowed else {(403, "FORBIDDEN")}
            if asked.names and not lent:
                expected = {(404, "NOT_FOUND")}
            if lent and allowed and method == "reservations.create":
                expected |= {(409, "QUOTA_EXCEEDED")}
            assert await status_of(answer) in expected, (relation, role, answer.text)
            if not asked.names and allowed:
                theirs = answer.text.replace(scene.pool, "") if relation == OFFERED else answer.text
                for mine_only in (scene.world.tenant, scene.world.pool_id, scene.pool, scene.operation):
                    own_parent = relation == DESCENDANT and mine_only == scene.world.tenant
                    assert own_parent or mine_only not in theirs, (relation, role)


@pytest.mark.parametrize("method", FLEET)
async def test_nobody_acts_for_a_tenant_that_is_not_below_its_own(
    scene: Scene, others: dict[str, World], method: str
) -> None:
    asked = FLEET[method]
    for world in others.values():
        mine = Api(scene.api.client, world.token, scene.world.tenant)
        answer = await mine.fleet(method, **await asked.body(scene))
        assert await status_of(answer) == (404, "NOT_FOUND")
    owner = of(scene.api, scene.world)
    below = await owner.fleet("sites.list", tenantId=others[DESCENDANT].tenant)
    assert below.status_code == 200


@pytest.mark.parametrize("route", CLUSTER)
async def test_the_cluster_api_by_relation_and_role(
    scene: Scene, others: dict[str, World], route: str
) -> None:
    asked = CLUSTER[route]
    for relation, world in {OWN: scene.world, **others}.items():
        for role in Role:
            mine = Api(scene.api.client, await world.token_for(role), world.tenant)
            path = await asked.path(scene)
            answer = await (mine.get(path) if asked.body is None else mine.post(path, asked.body))
            if asked.names and relation != OWN:
                assert await status_of(answer) == (404, "NOT_FOUND"), (relation, role)
            elif not role_allows(role, asked.permission):
                assert await status_of(answer) == (403, "FORBIDDEN"), (relation, role)
            else:
                assert answer.status_code == asked.status, (relation, role, answer.text)
                if relation != OWN:
                    assert scene.operation not in answer.text


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer bup_nobody"}, {"Authorization": "Basic eA=="}]
)
async def test_without_a_live_token_every_route_is_refused_alike(
    scene: Scene, headers: dict[str, str]
) -> None:
    for method in FLEET:
        answer = await scene.api.client.post(
            f"/api/compute/{method.replace('.', '/')}", json={"tenantId": scene.world.tenant}, headers=headers
        )
        assert await status_of(answer) == (401, "UNAUTHENTICATED"), method
    for asked in CLUSTER.values():
        path = await asked.path(scene)
        verb = "GET" if asked.body is None else "POST"
        answer = await scene.api.client.request(verb, path, headers=headers)
        assert answer.status_code == 401, path
