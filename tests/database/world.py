"""A tenant with everything that a create needs, made with the application's own functions."""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Select, event, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from database.clusters import NewArray, create_cluster, find_cluster
from database.machine_types import create_machine_type
from database.pools import NewPool, create_pool
from database.profiles import NewProfile, create_profile
from database.set_requests import SetRequest
from database.sites import create_site
from database.submission import Creation, create_nodes
from database.tables import Atom, Authorization, Claim, Machine, Tenant
from database.tokens import issue_token
from database.unit_of_work import Database
from database.visibility import Kind
from domain.ids import new_id
from domain.permissions import Role, Scope
from profiles.canonical import canonical
from profiles.checking import parse

CONTENT: dict[str, Any] = {
    "schema": 1,
    "steps": [{"name": "hello", "uses": "command", "with": {"run": "true"}}],
}


NO_SCOPE = Scope()
T = TypeVar("T")


def canonical_content(run: str = "true") -> str:
    """Canonical content with one step."""
    step = {"name": "hello", "uses": "command", "with": {"run": run}}
    return canonical(parse({"schema": 1, "steps": [step]}))


@dataclass(frozen=True)
class World:
    """One tenant of a test, and what it owns."""

    database: Database
    tenant: str
    token: str
    site_id: str
    pool_id: str
    profile: str
    profile_id: str
    cluster: str

    async def token_for(self, role: Role, *, tenant: str | None = None, scope: Scope = NO_SCOPE) -> str:
        """A token of another role, or of another tenant."""
        async with self.database.begin() as session:
            _, token = await issue_token(
                session, tenant_id=tenant or self.tenant, principal=f"a {role}", role=role, scope=scope
            )
            return token

    async def machines(
        self, count: int, kind: str = "gpu8", *, pool_id: str | None = None, **values: Any
    ) -> list[str]:
        """Ready machines in the pool, put in as rows: nothing here touches them."""
        gpus = {"gpu8": 8, "cpu": 0}[kind]
        ids = [new_id("node") for _ in range(count)]
        async with self.database.begin() as session:
            await session.execute(insert(Machine), [self._machine(i, kind, pool_id, values) for i in ids])
            await session.execute(
                insert(Authorization),
                [
                    {"tenant_id": self.tenant, "kind": Kind.NODE, "object_id": machine, "owned": True}
                    for machine in ids
                ],
            )
            await session.execute(
                insert(Atom),
                [
                    {"machine_id": machine, "resource": resource, "number": number}
                    for machine in ids
                    for resource, number in [("host", 0), *(("gpu", n) for n in range(gpus))]
                ],
            )
            await session.execute(insert(Claim), [{"machine_id": machine, "token": 0} for machine in ids])
        return ids

    def _machine(
        self, machine_id: str, kind: str, pool_id: str | None, values: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {
            "id": machine_id,
            "tenant_id": self.tenant,
            "site_id": self.site_id,
            "pool_id": pool_id or self.pool_id,
            "name": machine_id[-12:],
            "machine_type": kind,
            "address": f"{machine_id[-12:]}.test",
            "key_secret": "secret://file/key",
            "state": "ready",
            **values,
        }

    async def create(
        self, sets: Sequence[SetRequest], *, request_id: str | None = None, cluster: str | None = None
    ) -> Creation:
        """A create through the core, in a transaction of its own."""
        async with self.database.begin() as session:
            return await create_nodes(
                session,
                tenant_id=self.tenant,
                actor="tester",
                cluster=await find_cluster(session, self.tenant, cluster or self.cluster),
                sets=sets,
                request_id=request_id,
            )

    async def add_cluster(self, name: str, *arrays: NewArray) -> str:
        """Another cluster."""
        async with self.database.begin() as session:
            await create_cluster(session, tenant_id=self.tenant, actor="t", name=name, arrays=arrays)
        return name

    async def set(self, table: Any, where: Any, **values: Any) -> None:
        """Sets rows by hand, as a worker would."""
        async with self.database.begin() as session:
            await session.execute(update(table).where(where).values(**values))

    async def count(self, table: Any, *where: Any) -> int:
        """How many rows there are."""
        async with self.database.begin() as session:
            return await session.scalar(select(func.count()).select_from(table).where(*where)) or 0

    async def one(self, statement: Select[T]) -> T:
        """The one row that a select finds."""
        async with self.database.begin() as session:
            return (await session.execute(statement)).scalar_one()

    async def fetch(self, statement: str, **values: Any) -> Any:
        """One value by plain SQL."""
        async with self.database.begin() as session:
            return await session.scalar(text(statement), values)


async def make_world(database: Database, *, role: Role = Role.OWNER) -> World:
    """A tenant nobody else uses: site, types `gpu8` and `cpu`, pool, profile, cluster `demo`, array `gpu`."""
    tenant = f"t-{uuid.uuid4().hex[:12]}"
    async with database.begin() as session:
        session.add(Tenant(id=tenant))
        await session.flush()
        _, token = await issue_token(session, tenant_id=tenant, principal="tester", role=role)
        site = await create_site(
            session, tenant_id=tenant, actor="t", name="here", region="north", custom=True
        )
        await _types(session, tenant)
        pool = await create_pool(session, tenant_id=tenant, actor="t", asked=new_pool(site.id))
        profile = await create_profile(
            session,
            tenant_id=tenant,
            actor="t",
            asked=NewProfile("base", "", "private", canonical_content()),
        )
        reference = f"{tenant}/base@1"
        await create_cluster(
            session,
            tenant_id=tenant,
            actor="t",
            name="demo",
            arrays=[NewArray("gpu", pool.id, reference, subnet_id="rack-1", attributes=ATTRIBUTES)],
        )
    return World(database, tenant, token, site.id, pool.id, reference, profile.id, "demo")


ATTRIBUTES: dict[str, Any] = {"Configuration": {"slurm": {"autoscale": True, "partition": "gpu"}}}


def new_pool(site_id: str, **changes: Any) -> NewPool:
    """A pool of GPU machines as asked for."""
    values: dict[str, Any] = {
        "site_id": site_id,
        "machine_class": "metal-host",
        "gpu_model": "H200",
        "sharing": "exclusive",
        "agent": "bcd",
        "owner_quota": {"gpu": 2_147_483_647},
    }
    return NewPool(**{**values, **changes})


async def _types(session: AsyncSession, tenant: str) -> None:
    for name, vcpu, model, gpus in (("gpu8", 32, "H200", 8), ("cpu", 8, None, 0)):
        await create_machine_type(
            session,
            tenant_id=tenant,
            actor="t",
            name=name,
            vcpu=vcpu,
            pcpu=None,
            memory_gb=256.0,
            gpu_model=model,
            gpu_count=gpus,
            infiniband=False,
            price_per_hour=None,
        )


def one_line(text: str) -> dict[str, Any]:
    """A body that must be one JSON object on one line."""
    assert "\n" not in text
    value = json.loads(text)
    assert isinstance(value, dict)
    return value


@contextmanager
def statements_of(database: Database) -> Iterator[list[str]]:
    """The SQL statements that are sent meanwhile: how the cost of a thousand is told on any machine."""
    sent: list[str] = []

    def note(*told: object) -> None:
        sent.append(str(told[2]))

    engine = database.engine.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(engine, "before_cursor_execute", note)
