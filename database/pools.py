"""Pools: machines of one site under one GPU model and one sharing mode, and who may use how much of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import insert as plain_insert
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from database.events import record_event
from database.refusals import conflict, not_found
from database.sites import find_site
from database.tables import Pool, QuotaRow, Site
from domain.ids import derived_id, new_id

# What the owner may use when it names no quota: as much as a row can say.
UNLIMITED = 2_147_483_647


@dataclass(frozen=True, slots=True)
class NewPool:
    """A pool as asked for, defaults filled in."""

    site_id: str
    machine_class: str
    gpu_model: str | None
    sharing: str
    agent: str
    owner_quota: Mapping[str, int]
    provider_account_id: str | None = None
    idempotency_key: str | None = None


def keyed_pool_id(tenant_id: str, caller: str, key: str) -> str:
    """The id that a retry of the same create finds again."""
    return derived_id("pool", tenant_id, caller, key)


async def stored_pool(session: AsyncSession, tenant_id: str, caller: str, asked: NewPool) -> Pool | None:
    """What an earlier create under the same key made; CONFLICT when it was asked for differently."""
    if asked.idempotency_key is None:
        return None
    pool = await session.get(Pool, keyed_pool_id(tenant_id, caller, asked.idempotency_key))
    if pool is None:
        return None
    differs = [
        word
        for word, before, now in (
            ("site", pool.site_id, asked.site_id),
            ("class", pool.machine_class, asked.machine_class),
            ("sharing mode", pool.sharing, asked.sharing),
            ("agent", pool.agent, asked.agent),
            ("provider account", pool.provider_account_id, asked.provider_account_id),
        )
        if before != now
    ]
    if differs:
        raise conflict(f"this idempotency key made pool {pool.id}, with another {' and '.join(differs)}")
    return pool


async def find_pool(session: AsyncSession, tenant_id: str, pool_id: str) -> Pool:
    """A pool that the tenant sees; Refusal NOT_FOUND otherwise."""
    pool = await session.scalar(select(Pool).where(Pool.id == pool_id, Pool.tenant_id == tenant_id))
    if pool is None:
        raise not_found(f"there is no pool {pool_id}")
    return pool


async def list_pools(session: AsyncSession, tenant_id: str, *, only: str | None = None) -> list[Pool]:
    """The pools that the tenant owns, or `only` that one of them; the contract knows no pages here."""
    query = select(Pool).where(Pool.tenant_id == tenant_id)
    if only is not None:
        query = query.where(Pool.id == only)
    return list(await session.scalars(query.order_by(Pool.id)))


async def pools_of(session: AsyncSession, pool_ids: Sequence[str]) -> dict[str, Pool]:
    """These pools by id, whoever owns them."""
    return {pool.id: pool for pool in await session.scalars(select(Pool).where(Pool.id.in_(pool_ids)))}


async def regions_of(session: AsyncSession, pool_ids: Sequence[str]) -> dict[str, str]:
    """The region of each pool's site."""
    rows = await session.execute(
        select(Pool.id, Site.region).join(Site, Site.id == Pool.site_id).where(Pool.id.in_(pool_ids))
    )
    return {row.id: row.region for row in rows}


async def quotas_of(
    session: AsyncSession, tenant_id: str, pool_ids: Sequence[str], *, lock: bool = False
) -> list[QuotaRow]:
    """The tenant's own quota rows on these pools, sorted; locked in that order when asked."""
    query = (
        select(QuotaRow)
        .where(QuotaRow.pool_id.in_(pool_ids), QuotaRow.tenant_id == tenant_id)
        .order_by(QuotaRow.pool_id, QuotaRow.tenant_id, QuotaRow.resource)
        .execution_options(populate_existing=True)
    )
    return list(await session.scalars(query.with_for_update() if lock else query))


async def lock_pools(session: AsyncSession, pool_ids: Sequence[str]) -> dict[str, Pool]:
    """Takes the pools' rows by id: who books in a pool, or moves machines in or out, holds its row."""
    rows = await session.scalars(
        select(Pool)
        .where(Pool.id.in_(pool_ids))
        .order_by(Pool.id)
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    )
    return {pool.id: pool for pool in rows}


async def create_pool(session: AsyncSession, *, tenant_id: str, actor: str, asked: NewPool) -> Pool:
    """Makes a pool at version 1 with its owner's quota rows. Racing creates under one key make one pool."""
    await find_site(session, tenant_id, asked.site_id)
    key = asked.idempotency_key
    pool_id = new_id("pool") if key is None else keyed_pool_id(tenant_id, actor, key)
    made: Pool | None = await session.scalar(
        insert(Pool)
        .values(
            id=pool_id,
            tenant_id=tenant_id,
            site_id=asked.site_id,
            machine_class=asked.machine_class,
            gpu_model=asked.gpu_model,
            sharing=asked.sharing,
            agent=asked.agent,
            provider_account_id=asked.provider_account_id,
            created_by=actor,
        )
        .on_conflict_do_nothing()
        .returning(Pool)
    )
    if made is None:
        stored = await stored_pool(session, tenant_id, actor, asked)
        if stored is None:
            raise conflict(f"pool {pool_id} is being made by another request; ask again")
        return stored
    if asked.owner_quota:
        await session.execute(
            plain_insert(QuotaRow),
            [
                {"pool_id": pool_id, "tenant_id": tenant_id, "resource": resource, "maximum": maximum}
                for resource, maximum in sorted(asked.owner_quota.items())
            ],
        )
    record_event(
        session,
        tenant_id=tenant_id,
        type="pool.created",
        subject=f"pool/{pool_id}",
        actor=actor,
        siteId=asked.site_id,
        sharing=asked.sharing,
    )
    return made
