"""Reservations: a tenant's bookings of GPUs or whole machines in one pool, made and ended by callers.

Locks: pool, quota rows, atoms. Whoever books in a pool holds its row, so what is read as free stays free.
"""

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy import exists, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from database.bookings import book_atoms, counted_atom, lock_for_release, release_reservation, with_gpus
from database.capacity import GPU, HOST, Allowance, free_atoms, free_hosts
from database.events import record_event
from database.matching import one_of
from database.pages import Page, PageRequest, page_of
from database.pools import SeenPool, lock_pools
from database.quotas import quotas_of, raise_use
from database.refusals import Refusal, RefusalCode, conflict, invalid_state, not_found
from database.tables import Atom, Booking, Node, Pool, Reservation
from domain.ids import derived_id, new_id

# What callers may ask for in a pool whose GPUs are not shared.
RESOURCES = (GPU, HOST)


@dataclass(frozen=True, slots=True)
class NewReservation:
    """A reservation as asked for: how much of each resource, until when."""

    resources: Mapping[str, int]
    expires_at: datetime | None = None
    idempotency_key: str | None = None


class Held(NamedTuple):
    """One atom that a reservation holds, or held."""

    machine_id: str
    resource: str
    number: int


def _id_of(tenant_id: str, actor: str, asked: NewReservation) -> str:
    if asked.idempotency_key is None:
        return new_id("res")
    return derived_id("res", tenant_id, actor, asked.idempotency_key)


async def stored_reservation(
    session: AsyncSession, tenant_id: str, actor: str, pool_id: str, asked: NewReservation
) -> Reservation | None:
    """What an earlier create under the same key made; CONFLICT when it was asked for differently."""
    if asked.idempotency_key is None:
        return None
    found = await session.get(Reservation, _id_of(tenant_id, actor, asked))
    if found is None:
        return None
    if (found.pool_id, found.resources) != (pool_id, dict(asked.resources)):
        raise conflict(f"this idempotency key made reservation {found.id}, of another pool or amount")
    return found


async def create_reservation(
    session: AsyncSession, *, tenant_id: str, actor: str, seen: SeenPool, asked: NewReservation
) -> Reservation:
    """Books atoms, on as few machines as possible and first on those that are in use already.

    Raises Refusal: INVALID_STATE for an archived pool, QUOTA_EXCEEDED, NO_CAPACITY.
    """
    pool = (await lock_pools(session, [seen.pool.id]))[seen.pool.id]
    # One that was made under the same key while this one waited for the pool.
    stored = await stored_reservation(session, tenant_id, actor, pool.id, asked)
    if stored is not None:
        return stored
    if pool.archived_at is not None:
        raise invalid_state(f"pool {pool.id} is archived")
    allowance = Allowance(
        await quotas_of(session, tenant_id, [pool.id], lock=True), owner=pool.tenant_id == tenant_id
    )
    atoms = await _choose(session, pool, allowance, asked.resources)
    whole = with_gpus(atoms)
    counted = Counter(atom.resource for atom in atoms if counted_atom(atom, whole))
    _check_quota(pool, allowance, counted)
    reservation = Reservation(
        id=_id_of(tenant_id, actor, asked),
        tenant_id=tenant_id,
        quota_tenant_id=seen.quota_tenant,
        pool_id=pool.id,
        state="active",
        resources=dict(asked.resources),
        created_by=actor,
        created_at=datetime.now(UTC),
        expires_at=asked.expires_at,
    )
    session.add(reservation)
    await session.flush()
    await book_atoms(session, reservation, atoms)
    await raise_use(session, seen.quota_tenant, pool.id, counted)
    record_event(
        session,
        tenant_id=tenant_id,
        type="reservation.created",
        subject=f"reservation/{reservation.id}",
        actor=actor,
        poolId=pool.id,
        resources=dict(asked.resources),
    )
    return reservation


async def _choose(
    session: AsyncSession, pool: Pool, allowance: Allowance, resources: Mapping[str, int]
) -> list[Atom]:
    gpus, hosts = resources.get(GPU, 0), resources.get(HOST, 0)
    # Said before what is free: who may not have so many is not to wait for them.
    _check_quota(pool, allowance, {GPU: gpus} if gpus else {})
    whole = await free_hosts(session, pool.id, hosts) if hosts else []
    if len(whole) < hosts:
        raise _no_capacity(pool, HOST, len(whole), hosts)
    single = await free_atoms(session, pool.id, GPU, gpus, without=whole) if gpus else []
    if len(single) < gpus:
        raise _no_capacity(pool, GPU, len(single), gpus)
    chosen = one_of(Atom.id, single) | one_of(Atom.machine_id, whole)
    locked = await session.scalars(select(Atom).where(chosen).order_by(Atom.id).with_for_update())
    return list(locked)


def _check_quota(pool: Pool, allowance: Allowance, wanted: Mapping[str, int]) -> None:
    for resource, amount in sorted(wanted.items()):
        maximum, used = allowance.maximum(resource), allowance.used(resource)
        if maximum is not None and used + amount > maximum:
            raise Refusal(
                RefusalCode.QUOTA_EXCEEDED,
                f"the quota for {resource} in pool {pool.id} is {maximum}, of which {max(0, maximum - used)} "
                f"were left at {_now()}; {amount} are needed",
            )


def _no_capacity(pool: Pool, resource: str, free: int, wanted: int) -> Refusal:
    return Refusal(
        RefusalCode.NO_CAPACITY,
        f"pool {pool.id} had {free} of {resource} free at {_now()}; {wanted} were asked for",
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


async def find_reservation(session: AsyncSession, tenant_id: str, reservation_id: str) -> Reservation:
    """A reservation of the tenant's; Refusal NOT_FOUND otherwise."""
    found = await session.scalar(
        select(Reservation).where(Reservation.id == reservation_id, Reservation.tenant_id == tenant_id)
    )
    if found is None:
        raise not_found(f"there is no reservation {reservation_id}")
    return found


async def list_reservations(
    session: AsyncSession,
    tenant_id: str,
    request: PageRequest,
    *,
    pool_id: str | None = None,
    state: str | None = None,
    only_pool: str | None = None,
) -> Page:
    """The tenant's reservations, also those of its cluster nodes, in the order in which they were made."""
    query = select(Reservation).where(Reservation.tenant_id == tenant_id)
    for wanted in (pool_id, only_pool):
        if wanted is not None:
            query = query.where(Reservation.pool_id == wanted)
    if state is not None:
        query = query.where(Reservation.state == state)
    return await page_of(session, query, [Reservation.id], request)


async def held_by(session: AsyncSession, reservation_ids: Sequence[str]) -> dict[str, list[Held]]:
    """What each of these reservations holds, or held until it ended."""
    rows = await session.execute(
        select(Booking.reservation_id, Booking.machine_id, Booking.resource, Atom.number)
        .join(Atom, Atom.id == Booking.atom_id)
        .where(one_of(Booking.reservation_id, reservation_ids))
        .order_by(Booking.machine_id, Booking.resource, Atom.number)
    )
    found: dict[str, list[Held]] = {reservation_id: [] for reservation_id in reservation_ids}
    for reservation_id, machine_id, resource, number in rows:
        found[reservation_id].append(Held(machine_id, resource, number))
    return found


async def nodes_of(session: AsyncSession, reservation_ids: Sequence[str]) -> dict[str, uuid.UUID]:
    """The cluster node that holds each of these, if one does."""
    rows = await session.execute(
        select(Node.reservation_id, Node.id).where(one_of(Node.reservation_id, reservation_ids))
    )
    return {reservation_id: node_id for reservation_id, node_id in rows if reservation_id is not None}


async def end_reservation(session: AsyncSession, reservation: Reservation, *, actor: str) -> Reservation:
    """Gives back what it holds; one that has ended stays as it is. INVALID_STATE for a cluster node's."""
    quotas = await lock_for_release(session, reservation.id)
    await session.refresh(reservation, with_for_update=True)
    if reservation.ended_at is not None:
        return reservation
    if await session.scalar(select(exists().where(Node.reservation_id == reservation.id))):
        raise invalid_state(
            f"reservation {reservation.id} is a cluster node's, and ends when the node is terminated"
        )
    await release_reservation(session, reservation.id, quotas)
    await session.refresh(reservation)
    reservation.ended_by = actor
    record_event(
        session,
        tenant_id=reservation.tenant_id,
        type="reservation.ended",
        subject=f"reservation/{reservation.id}",
        actor=actor,
    )
    return reservation


async def expired_reservations(session: AsyncSession, limit: int) -> list[Reservation]:
    """Live reservations whose time is over, the longest over first."""
    rows = await session.scalars(
        select(Reservation)
        .where(Reservation.ended_at.is_(None), Reservation.expires_at <= func.now())
        .order_by(Reservation.expires_at)
        .limit(limit)
    )
    return list(rows)
