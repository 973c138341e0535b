"""Booking: all atoms of exactly one machine per cluster node: the one place that prevents overbooking."""

from collections.abc import Mapping, Sequence

from sqlalchemy import ARRAY, Text, bindparam, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from database.matching import one_of
from database.tables import Atom, QuotaRow, Reservation
from domain.ids import new_id

_BOOK = text(
    """
    INSERT INTO bookings (atom_id, machine_id, reservation_id, tenant_id, pool_id, resource)
    SELECT atoms.id, atoms.machine_id, held.reservation_id, :tenant_id, held.pool_id, atoms.resource
    FROM unnest(:machines, :reservations, :pools) AS held (machine_id, reservation_id, pool_id)
    JOIN atoms ON atoms.machine_id = held.machine_id
    ORDER BY atoms.id
    """
).bindparams(*(bindparam(name, type_=ARRAY(Text)) for name in ("machines", "reservations", "pools")))


async def book_machines(
    session: AsyncSession, tenant_id: str, machines: Sequence[tuple[str, str]]
) -> list[str]:
    """Books (machine, pool) pairs whole, one reservation each; returns the reservations in that order.

    The caller holds the pools' rows and has read in the same transaction that the machines are free. A second
    live booking of an atom is impossible all the same: a unique index refuses it.
    """
    ids = [machine for machine, _ in machines]
    pools = [pool for _, pool in machines]
    locked = (
        select(Atom.id).where(one_of(Atom.machine_id, ids)).order_by(Atom.id).with_for_update().subquery()
    )
    await session.execute(select(func.count()).select_from(locked))
    reservations = [new_id("res") for _ in machines]
    await session.execute(
        insert(Reservation),
        [
            {"id": reservation, "tenant_id": tenant_id, "pool_id": pool, "state": "active"}
            for reservation, pool in zip(reservations, pools, strict=True)
        ],
    )
    await session.execute(
        _BOOK, {"tenant_id": tenant_id, "machines": ids, "reservations": reservations, "pools": pools}
    )
    return reservations


async def raise_use(session: AsyncSession, tenant_id: str, pool_id: str, taken: Mapping[str, int]) -> None:
    """Counts what was booked on the quota rows, which the caller has locked."""
    for resource, amount in sorted(taken.items()):
        await session.execute(
            update(QuotaRow)
            .where(
                QuotaRow.pool_id == pool_id, QuotaRow.tenant_id == tenant_id, QuotaRow.resource == resource
            )
            .values(in_use=QuotaRow.in_use + amount)
        )
