"""Booking: atoms of machines go to reservations here and nowhere else, and come back here."""

from collections import Counter
from collections.abc import Container, Sequence

from sqlalchemy import ARRAY, Text, bindparam, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from database.capacity import HOST
from database.matching import one_of
from database.tables import Atom, Booking, Pool, QuotaRow, Reservation
from domain.ids import new_id

# A machine with GPUs counts as its GPUs, one without as its host.
_BOOK = text(
    """
    INSERT INTO bookings (atom_id, machine_id, reservation_id, tenant_id, pool_id, resource, counted)
    SELECT atoms.id, atoms.machine_id, held.reservation_id, :tenant_id, held.pool_id, atoms.resource,
        atoms.resource <> 'host' OR NOT EXISTS (
            SELECT 1 FROM atoms AS gpus WHERE gpus.machine_id = atoms.machine_id AND gpus.resource <> 'host')
    FROM unnest(:machines, :reservations, :pools) AS held (machine_id, reservation_id, pool_id)
    JOIN atoms ON atoms.machine_id = held.machine_id
    ORDER BY atoms.id
    """
).bindparams(*(bindparam(name, type_=ARRAY(Text)) for name in ("machines", "reservations", "pools")))


async def book_machines(
    session: AsyncSession, tenant_id: str, machines: Sequence[tuple[str, str, str]]
) -> list[str]:
    """Books (machine, pool, quota tenant) whole, one reservation each; returns these in that order.

    The caller holds the pools' rows and has read in the same transaction that the machines are free. A second
    live booking of an atom is impossible all the same: a unique index refuses it.
    """
    ids = [machine for machine, _, _ in machines]
    locked = (
        select(Atom.id).where(one_of(Atom.machine_id, ids)).order_by(Atom.id).with_for_update().subquery()
    )
    await session.execute(select(func.count()).select_from(locked))
    rows = [
        {
            "id": new_id("res"),
            "tenant_id": tenant_id,
            "quota_tenant_id": quota_tenant,
            "pool_id": pool,
            "state": "active",
        }
        for _, pool, quota_tenant in machines
    ]
    await session.execute(insert(Reservation), rows)
    reservations = [row["id"] for row in rows]
    pools = [pool for _, pool, _ in machines]
    await session.execute(
        _BOOK, {"tenant_id": tenant_id, "machines": ids, "reservations": reservations, "pools": pools}
    )
    return reservations


def with_gpus(atoms: Sequence[Atom]) -> set[str]:
    """The machines of which there are GPUs among the atoms."""
    return {atom.machine_id for atom in atoms if atom.resource != HOST}


def counted_atom(atom: Atom, machines_with_gpus: Container[str]) -> bool:
    """Whether an atom counts on the quota row of its resource: a host only where it has no GPUs."""
    return atom.resource != HOST or atom.machine_id not in machines_with_gpus


async def book_atoms(session: AsyncSession, reservation: Reservation, atoms: Sequence[Atom]) -> None:
    """Books free atoms that the caller has locked, in the order of their ids; a host with all of its GPUs."""
    gpus = with_gpus(atoms)
    await session.execute(
        insert(Booking),
        [
            {
                "atom_id": atom.id,
                "machine_id": atom.machine_id,
                "reservation_id": reservation.id,
                "tenant_id": reservation.tenant_id,
                "pool_id": reservation.pool_id,
                "resource": atom.resource,
                "counted": counted_atom(atom, gpus),
            }
            for atom in atoms
        ],
    )


async def lock_for_release(session: AsyncSession, reservation_id: str | None) -> dict[str, QuotaRow]:
    """The quota rows that a reservation counts on, locked after its pool's row, which others may share."""
    await session.execute(
        select(Pool.id)
        .join(Reservation, Reservation.pool_id == Pool.id)
        .where(Reservation.id == reservation_id)
        .with_for_update(of=Pool, read=True)
    )
    rows = await session.scalars(
        select(QuotaRow)
        .join(
            Reservation,
            (Reservation.pool_id == QuotaRow.pool_id) & (Reservation.quota_tenant_id == QuotaRow.tenant_id),
        )
        .where(Reservation.id == reservation_id)
        .order_by(QuotaRow.resource)
        .with_for_update(of=QuotaRow)
    )
    return {row.resource: row for row in rows}


async def release_reservation(
    session: AsyncSession, reservation_id: str | None, quotas: dict[str, QuotaRow]
) -> None:
    """Ends a reservation: its live bookings end, and its quota is given back; idempotent."""
    released = await session.execute(
        update(Booking)
        .where(Booking.reservation_id == reservation_id, Booking.released_at.is_(None))
        .values(released_at=func.now())
        .returning(Booking.resource, Booking.counted)
    )
    for resource, count in Counter(resource for resource, counted in released if counted).items():
        if resource in quotas:
            quotas[resource].in_use -= count
    await session.execute(
        update(Reservation)
        .where(Reservation.id == reservation_id, Reservation.ended_at.is_(None))
        .values(state="ended", ended_at=func.now())
    )
