"""Tenants: a tree. Who belongs to one acts for it and for all below it."""

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from database.events import record_event
from database.matching import one_of
from database.pages import Page, PageRequest, page_of
from database.refusals import Refusal, conflict, not_found
from database.tables import Tenant
from database.tokens import Principal
from database.visibility import show_pools_to_new

# How deep the tree may be.
MOST_ANCESTORS = 16


def no_tenant(tenant_id: str, path: str = "tenantId") -> Refusal:
    """NOT_FOUND, also for one that is not in the caller's reach."""
    return not_found(f"there is no tenant {tenant_id}", path)


def below(tenant_id: str) -> ColumnElement[bool]:
    """Whether a tenant is this one or somewhere below it."""
    return or_(Tenant.id == tenant_id, Tenant.ancestors.contains([tenant_id]))


async def act_for(session: AsyncSession, principal: Principal, tenant_id: str) -> None:
    """Refusal NOT_FOUND unless the tenant is the principal's, below it, or any for one of the fleet's."""
    if tenant_id == principal.tenant_id:
        return
    found = select(Tenant.id).where(Tenant.id == tenant_id)
    if not principal.serves_fleet:
        found = found.where(below(principal.tenant_id))
    if await session.scalar(found) is None:
        raise no_tenant(tenant_id)


async def create_tenant(session: AsyncSession, *, actor: str, name: str, parent: Tenant | None) -> Tenant:
    """Makes a tenant below `parent`, or a root; CONFLICT when there is one of that name anywhere."""
    ancestors = [*parent.ancestors, parent.id] if parent else []
    # Excludes offers to any of them meanwhile, which look at who is below.
    await session.execute(
        select(Tenant.id).where(one_of(Tenant.id, ancestors)).order_by(Tenant.id).with_for_update(read=True)
    )
    made: Tenant | None = None
    if name not in ancestors:
        made = await session.scalar(
            insert(Tenant)
            .values(id=name, parent_id=parent.id if parent else None, ancestors=ancestors, created_by=actor)
            .on_conflict_do_nothing()
            .returning(Tenant)
        )
    if made is None:
        raise conflict(f"there is a tenant {name} already")
    await show_pools_to_new(session, made)
    record_event(
        session,
        tenant_id=name,
        type="tenant.created",
        subject=f"tenant/{name}",
        actor=actor,
        parent=made.parent_id,
    )
    return made


async def list_tenants(session: AsyncSession, top: str | None, request: PageRequest) -> Page:
    """The tenant `top` and all below it, or all there are."""
    query = select(Tenant)
    if top is not None:
        query = query.where(below(top))
    return await page_of(session, query, [Tenant.id], request)
