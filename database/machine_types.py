"""Machine types: what a kind of machine has, as its owner declares it."""

from collections.abc import Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from database.events import record_event
from database.matching import one_of
from database.pages import Page, PageRequest, page_of
from database.refusals import conflict, not_found
from database.tables import MachineType, Pool

# By pool and name: what a name means in a pool is its owner's to say.
PoolTypes = Mapping[tuple[str, str], MachineType]


async def known_machine_types(session: AsyncSession, tenant_id: str) -> dict[str, MachineType]:
    """All machine types of a tenant by name."""
    rows = await session.scalars(select(MachineType).where(MachineType.tenant_id == tenant_id))
    return {row.name: row for row in rows}


async def types_of_pools(session: AsyncSession, pool_ids: Sequence[str]) -> PoolTypes:
    """The machine types that the owners of these pools have declared."""
    rows = await session.execute(
        select(Pool.id, MachineType)
        .join(MachineType, MachineType.tenant_id == Pool.tenant_id)
        .where(one_of(Pool.id, pool_ids))
    )
    return {(pool_id, kind.name): kind for pool_id, kind in rows}


async def find_machine_type(session: AsyncSession, tenant_id: str, name: str) -> MachineType:
    """One machine type; Refusal NOT_FOUND otherwise."""
    found = await session.get(MachineType, (tenant_id, name))
    if found is None:
        raise not_found(f"there is no machine type {name}")
    return found


async def list_machine_types(session: AsyncSession, tenant_id: str, request: PageRequest) -> Page:
    """The tenant's machine types by name."""
    query = select(MachineType).where(MachineType.tenant_id == tenant_id)
    return await page_of(session, query, [MachineType.name], request)


async def create_machine_type(
    session: AsyncSession,
    *,
    tenant_id: str,
    actor: str,
    name: str,
    vcpu: int,
    pcpu: int | None,
    memory_gb: float,
    gpu_model: str | None,
    gpu_count: int,
    infiniband: bool,
    price_per_hour: float | None,
) -> MachineType:
    """Declares a machine type; CONFLICT when the name is taken. `pcpu` absent means as many as `vcpu`."""
    made: MachineType | None = await session.scalar(
        insert(MachineType)
        .values(
            tenant_id=tenant_id,
            name=name,
            vcpu=vcpu,
            pcpu=vcpu if pcpu is None else pcpu,
            memory_gb=memory_gb,
            gpu_model=gpu_model,
            gpu_count=gpu_count,
            infiniband=infiniband,
            price_per_hour=price_per_hour,
        )
        .on_conflict_do_nothing()
        .returning(MachineType)
    )
    if made is None:
        raise conflict(f"there is a machine type {name} already")
    record_event(
        session,
        tenant_id=tenant_id,
        type="machine-type.created",
        subject=f"machine-type/{name}",
        actor=actor,
    )
    return made
