"""Quota rows: how much of a pool's resources a tenant may hold, and holds.

`in_use` is what the live bookings count, of all reservations whose quota tenant it is; whoever books or
releases holds the pool's row, and then the quota rows in their order.
"""

from collections.abc import Mapping, Sequence

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from database.matching import one_of
from database.tables import Authorization, Booking, QuotaRow, Reservation
from database.visibility import Kind


async def quotas_of(
    session: AsyncSession, tenant_id: str, pool_ids: Sequence[str], *, lock: bool = False
) -> list[QuotaRow]:
    """The rows that count for the tenant on pools that it sees, sorted; locked in that order when asked.

    These are its own, or those of the tenant above it through whose offer it sees the pool.
    """
    query = (
        select(QuotaRow)
        .join(Authorization, Authorization.object_id == QuotaRow.pool_id)
        .where(
            Authorization.tenant_id == tenant_id,
            Authorization.kind == Kind.POOL,
            QuotaRow.tenant_id == func.coalesce(Authorization.through, Authorization.tenant_id),
            one_of(QuotaRow.pool_id, pool_ids),
        )
        .order_by(QuotaRow.pool_id, QuotaRow.tenant_id, QuotaRow.resource)
        .execution_options(populate_existing=True)
    )
    return list(await session.scalars(query.with_for_update(of=QuotaRow) if lock else query))


async def quota_tenants(session: AsyncSession, tenant_id: str, pool_ids: Sequence[str]) -> dict[str, str]:
    """Whose rows count for the tenant, by pool; a pool that it does not see is absent."""
    rows = await session.execute(
        select(Authorization.object_id, func.coalesce(Authorization.through, Authorization.tenant_id)).where(
            Authorization.tenant_id == tenant_id,
            Authorization.kind == Kind.POOL,
            one_of(Authorization.object_id, pool_ids),
        )
    )
    return {pool_id: quota_tenant for pool_id, quota_tenant in rows}


async def raise_use(session: AsyncSession, tenant_id: str, pool_id: str, taken: Mapping[str, int]) -> None:
    """Counts what was booked on the quota rows of `tenant_id`, which the caller has locked."""
    for resource, amount in sorted(taken.items()):
        await session.execute(
            update(QuotaRow)
            .where(
                QuotaRow.pool_id == pool_id, QuotaRow.tenant_id == tenant_id, QuotaRow.resource == resource
            )
            .values(in_use=QuotaRow.in_use + amount)
        )


async def resize(session: AsyncSession, pool_id: str, tenant_id: str, quota: Mapping[str, int]) -> None:
    """Sets maxima; rows that are not there are made. None goes below what is in use; others stay.

    The caller holds the pool's row.
    """
    for resource, maximum in sorted(quota.items()):
        used = await _in_use(session, pool_id, tenant_id, resource)
        await session.execute(
            insert(QuotaRow)
            .values(
                pool_id=pool_id,
                tenant_id=tenant_id,
                resource=resource,
                maximum=max(maximum, used),
                in_use=used,
            )
            .on_conflict_do_update(
                index_elements=[QuotaRow.pool_id, QuotaRow.tenant_id, QuotaRow.resource],
                set_={"maximum": func.greatest(maximum, QuotaRow.in_use)},
            )
        )


async def _in_use(session: AsyncSession, pool_id: str, tenant_id: str, resource: str) -> int:
    """What the live bookings count; only a row that is made is in need of it."""
    return (
        await session.scalar(
            select(func.count())
            .select_from(Booking)
            .join(Reservation, Reservation.id == Booking.reservation_id)
            .where(
                Booking.pool_id == pool_id,
                Booking.resource == resource,
                Booking.counted,
                Booking.released_at.is_(None),
                Reservation.quota_tenant_id == tenant_id,
            )
        )
        or 0
    )


async def drop_to_use(session: AsyncSession, pool_id: str, tenant_ids: Sequence[str]) -> None:
    """Nothing new of these tenants fits; what they hold they keep. The caller holds the pool's row."""
    rows = await session.scalars(
        select(QuotaRow)
        .where(QuotaRow.pool_id == pool_id, one_of(QuotaRow.tenant_id, tenant_ids))
        .order_by(QuotaRow.tenant_id, QuotaRow.resource)
        .with_for_update()
    )
    for row in rows:
        row.maximum = row.in_use
