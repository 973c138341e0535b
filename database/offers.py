"""Offers: a pool's owner lets another tenant use it, with a quota, and withdraws that again.

Both hold the pool's row, as every booking does: whoever books sees the offer as it was or as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import delete, exists, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from database.events import record_event
from database.pools import lock_pools, regions_of
from database.quotas import drop_to_use, resize
from database.refusals import invalid_state
from database.tables import Machine, Offer, Pool, Tenant
from database.tenants import no_tenant
from database.visibility import show_pool
from domain.states import MachineState


@dataclass(frozen=True, slots=True)
class NewOffer:
    """An offer as asked for."""

    to: str
    quota: Mapping[str, int]
    include_descendants: bool = False
    priority: int = 0


async def offer_pool(session: AsyncSession, *, actor: str, pool: Pool, asked: NewOffer) -> Pool:
    """Offers a pool, or changes the offer that there is. To its own owner it only sizes quota rows.

    NOT_FOUND for an unknown tenant; INVALID_STATE when the pool may not be shared so.
    """
    pool = (await lock_pools(session, [pool.id]))[pool.id]
    # Excludes the making of tenants below it meanwhile, which look at what is offered above them.
    tenant = await session.scalar(select(Tenant).where(Tenant.id == asked.to).with_for_update(key_share=True))
    if tenant is None:
        raise no_tenant(asked.to, "toTenantId")
    if pool.archived_at is not None:
        raise invalid_state(f"pool {pool.id} is archived")
    if asked.to != pool.tenant_id:
        await _check_shareable(session, pool)
        await _check_single_tenant(session, pool, asked)
        await session.execute(
            insert(Offer)
            .values(
                pool_id=pool.id,
                tenant_id=asked.to,
                include_descendants=asked.include_descendants,
                priority=asked.priority,
                created_by=actor,
            )
            .on_conflict_do_update(
                index_elements=[Offer.pool_id, Offer.tenant_id],
                set_={"include_descendants": asked.include_descendants, "priority": asked.priority},
            )
        )
    await resize(session, pool.id, asked.to, asked.quota)
    await show_pool(session, pool, (await regions_of(session, [pool.id]))[pool.id])
    record_event(
        session,
        tenant_id=pool.tenant_id,
        type="pool.offered",
        subject=f"pool/{pool.id}",
        actor=actor,
        to=asked.to,
        quota=dict(asked.quota),
        includeDescendants=asked.include_descendants,
        priority=asked.priority,
    )
    await session.flush()
    return pool


async def _check_shareable(session: AsyncSession, pool: Pool) -> None:
    if pool.sharing in ("timeslice", "mps"):
        raise invalid_state(
            f"a {pool.sharing} pool is for its owner only: its GPUs are shared without isolation"
        )
    owned = exists().where(
        Machine.pool_id == pool.id, Machine.ownership == "tenant", Machine.state != MachineState.RETIRED
    )
    if await session.scalar(select(owned)):
        raise invalid_state(f"pool {pool.id} holds nodes that its tenant owns; these are for itself only")


async def _check_single_tenant(session: AsyncSession, pool: Pool, asked: NewOffer) -> None:
    if pool.policy.get("singleTenant") is not True:
        return
    if asked.include_descendants:
        raise invalid_state("the pool's policy has it used by one tenant: includeDescendants must be false")
    other = await session.scalar(
        select(Offer.tenant_id).where(Offer.pool_id == pool.id, Offer.tenant_id != asked.to).limit(1)
    )
    if other is not None:
        raise invalid_state("the pool's policy has it used by one tenant, and it is offered to another one")


async def unoffer_pool(session: AsyncSession, *, actor: str, pool: Pool, tenant_id: str) -> bool:
    """Withdraws an offer; whether there was one. What the tenant holds it keeps until it is released."""
    pool = (await lock_pools(session, [pool.id]))[pool.id]
    removed = await session.scalar(
        delete(Offer).where(Offer.pool_id == pool.id, Offer.tenant_id == tenant_id).returning(Offer.tenant_id)
    )
    if removed is None:
        return False
    await drop_to_use(session, pool.id, [tenant_id])
    await show_pool(session, pool, (await regions_of(session, [pool.id]))[pool.id])
    record_event(
        session,
        tenant_id=pool.tenant_id,
        type="pool.unoffered",
        subject=f"pool/{pool.id}",
        actor=actor,
        to=tenant_id,
    )
    return True
