"""Pools: machines of one site under one GPU model and one sharing mode, and who may use how much of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Row, Select, exists, select
from sqlalchemy import insert as plain_insert
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from database.events import record_event
from database.refusals import conflict, not_found
from database.sites import find_site
from database.tables import Authorization, Offer, Pool, QuotaRow, Site
from database.visibility import Kind, sees, show_pool
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


@dataclass(frozen=True, slots=True)
class SeenPool:
    """A pool as one tenant sees it; `quota_tenant` is the tenant whose quota rows count for it."""

    pool: Pool
    owned: bool
    quota_tenant: str


def _seen_by(tenant_id: str) -> Select[Pool, Authorization]:
    return select(Pool, Authorization).join(Authorization, sees(tenant_id, Kind.POOL, Pool.id))


def _as_seen(row: Row[Pool, Authorization]) -> SeenPool:
    pool, authorization = row
    return SeenPool(pool, authorization.owned, authorization.through or authorization.tenant_id)


async def find_pool(session: AsyncSession, tenant_id: str, pool_id: str) -> SeenPool:
    """A pool that the tenant owns or is offered; Refusal NOT_FOUND otherwise."""
    row = (await session.execute(_seen_by(tenant_id).where(Pool.id == pool_id))).one_or_none()
    if row is None:
        raise not_found(f"there is no pool {pool_id}")
    return _as_seen(row)


async def own_pool(session: AsyncSession, tenant_id: str, pool_id: str) -> Pool:
    """A pool that the tenant owns; Refusal NOT_FOUND otherwise, also for one that it is offered."""
    seen = await find_pool(session, tenant_id, pool_id)
    if not seen.owned:
        raise not_found(f"there is no pool {pool_id}")
    return seen.pool


async def list_pools(session: AsyncSession, tenant_id: str, *, only: str | None = None) -> list[SeenPool]:
    """The pools that the tenant sees, or `only` that one of them; the contract knows no pages here."""
    query = _seen_by(tenant_id)
    if only is not None:
        query = query.where(Pool.id == only)
    return [_as_seen(row) for row in await session.execute(query.order_by(Pool.id))]


async def pools_of(session: AsyncSession, pool_ids: Sequence[str]) -> dict[str, Pool]:
    """These pools by id, whoever owns them."""
    return {pool.id: pool for pool in await session.scalars(select(Pool).where(Pool.id.in_(pool_ids)))}


async def regions_of(session: AsyncSession, pool_ids: Sequence[str]) -> dict[str, str]:
    """The region of each pool's site."""
    rows = await session.execute(
        select(Pool.id, Site.region).join(Site, Site.id == Pool.site_id).where(Pool.id.in_(pool_ids))
    )
    return {row.id: row.region for row in rows}


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


async def is_offered(session: AsyncSession, pool_id: str) -> bool:
    """Whether it is offered to anybody but its owner."""
    return bool(await session.scalar(select(exists().where(Offer.pool_id == pool_id))))


async def create_pool(session: AsyncSession, *, tenant_id: str, actor: str, asked: NewPool) -> Pool:
    """Makes a pool at version 1 with its owner's quota rows. Racing creates under one key make one pool."""
    site = await find_site(session, tenant_id, asked.site_id)
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
    await show_pool(session, made, site.region)
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
