"""What a pool has of each machine type, and what a tenant may still take of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import and_, exists, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from database.matching import one_of
from database.tables import Atom, Booking, Machine, QuotaRow
from domain.states import MachineState

GPU = "gpu"
HOST = "host"

# A machine in one of these counts as the pool's even while it is busy with itself, so that the limits that
# a scheduler reads do not move with every clean-up.
IN_SERVICE = (MachineState.READY, MachineState.PROVISIONING, MachineState.STOPPED, MachineState.CLEANING)

_booked = exists().where(Booking.machine_id == Machine.id, Booking.released_at.is_(None))
_in_order = and_(
    Machine.state == MachineState.READY,
    func.jsonb_array_length(Machine.cordons) == 0,
    Machine.quarantined.is_(False),
    Machine.mismatched.is_(False),
)
# Without atoms nothing would stop a second booking.
_bookable = and_(_in_order, exists().where(Atom.machine_id == Machine.id))


@dataclass(frozen=True, slots=True)
class Supply:
    """Machines of one type in one pool."""

    total: int = 0
    booked: int = 0
    free: int = 0


@dataclass(frozen=True, slots=True)
class FreeMachine:
    """A machine that may be booked now; `gpus` is what it takes of the quota, 0 for one without GPUs."""

    id: str
    pool_id: str
    machine_type: str
    gpus: int


async def supplies_of(session: AsyncSession, pool_ids: Sequence[str]) -> dict[tuple[str, str], Supply]:
    """Counts of machines by pool and machine type."""
    rows = await session.execute(
        select(
            Machine.pool_id,
            Machine.machine_type,
            func.count().filter(_booked | Machine.state.in_(IN_SERVICE)).label("total"),
            func.count().filter(_booked).label("booked"),
            func.count().filter(_bookable & ~_booked).label("free"),
        )
        .where(Machine.pool_id.in_(pool_ids))
        .group_by(Machine.pool_id, Machine.machine_type)
    )
    return {
        (row.pool_id, row.machine_type): Supply(row.total, row.booked, row.free)
        for row in rows
        if row.pool_id is not None
    }


@dataclass(frozen=True, slots=True)
class ResourceCount:
    """Atoms of one resource in one pool. Each is one of the three: `booked`, `usable` (free), or held back.

    Held back are those of machines that may not be booked now, and a host some of whose GPUs are booked.
    """

    resource: str
    total: int
    usable: int
    booked: int
    held_back: int


async def count_resources(session: AsyncSession, pool_ids: Sequence[str]) -> dict[str, list[ResourceCount]]:
    """What each pool has of each resource, counted now; a pool without machines has none."""
    booked = exists().where(Booking.atom_id == Atom.id, Booking.released_at.is_(None))
    free = ~booked & _in_order & ~((Atom.resource == HOST) & _booked)
    rows = await session.execute(
        select(
            Machine.pool_id,
            Atom.resource,
            func.count().label("total"),
            func.count().filter(free).label("usable"),
            func.count().filter(booked).label("booked"),
        )
        .join(Atom, Atom.machine_id == Machine.id)
        .where(one_of(Machine.pool_id, pool_ids), Machine.state != MachineState.RETIRED)
        .group_by(Machine.pool_id, Atom.resource)
        .order_by(Machine.pool_id, Atom.resource)
    )
    found: dict[str, list[ResourceCount]] = {pool_id: [] for pool_id in pool_ids}
    for pool_id, resource, total, usable, taken in rows:
        found[pool_id or ""].append(ResourceCount(resource, total, usable, taken, total - usable - taken))
    return found


async def free_machines(session: AsyncSession, pool_ids: Sequence[str]) -> list[FreeMachine]:
    """Every bookable machine of these pools, by id. Exact while the pools' rows are held."""
    gpus = (
        select(func.count())
        .select_from(Atom)
        .where(Atom.machine_id == Machine.id, Atom.resource == GPU)
        .scalar_subquery()
    )
    rows = await session.execute(
        select(Machine.id, Machine.pool_id, Machine.machine_type, gpus.label("gpus"))
        .where(Machine.pool_id.in_(pool_ids), _bookable, ~_booked)
        .order_by(Machine.id)
    )
    return [FreeMachine(row.id, row.pool_id or "", row.machine_type, row.gpus) for row in rows]


async def free_hosts(session: AsyncSession, pool_id: str, most: int) -> list[str]:
    """Machines of a pool of which nothing is booked, those with the fewest GPUs first."""
    atoms = select(func.count()).select_from(Atom).where(Atom.machine_id == Machine.id).scalar_subquery()
    rows = await session.scalars(
        select(Machine.id)
        .where(Machine.pool_id == pool_id, _bookable, ~_booked)
        .order_by(atoms, Machine.id)
        .limit(most)
    )
    return list(rows)


async def free_atoms(
    session: AsyncSession, pool_id: str, resource: str, most: int, *, without: Sequence[str] = ()
) -> list[int]:
    """Free atoms of a pool, ids, on the machines that have the fewest left first; exact under its lock.

    So machines fill up one after the other, and whole ones stay free for those who need one.
    """
    booked = exists().where(Booking.atom_id == Atom.id, Booking.released_at.is_(None))
    left = func.count().over(partition_by=Atom.machine_id)
    free = (
        select(Atom.id, Atom.machine_id, Atom.number, left.label("left_there"))
        .join(Machine, Machine.id == Atom.machine_id)
        .where(
            Machine.pool_id == pool_id,
            Atom.resource == resource,
            _in_order,
            ~booked,
            ~one_of(Machine.id, without),
        )
        .subquery()
    )
    rows = await session.scalars(
        select(free.c.id).order_by(free.c.left_there, free.c.machine_id, free.c.number).limit(most)
    )
    return list(rows)


class Allowance:
    """What is left of a tenant's quota in one pool.

    A machine with GPUs counts as its GPUs on the row `gpu`, one without as one `host`. A missing row grants
    0, except that the owner needs none for `host`.
    """

    def __init__(self, rows: Sequence[QuotaRow], *, owner: bool) -> None:
        self._limits: Mapping[str, int] = {row.resource: row.maximum for row in rows}
        self._used = {row.resource: row.in_use for row in rows}
        self._owner = owner
        self.taken: dict[str, int] = {}

    @staticmethod
    def price(gpus: int) -> tuple[str, int]:
        """The resource that a machine counts on, and how much of it."""
        return (GPU, gpus) if gpus else (HOST, 1)

    def maximum(self, resource: str) -> int | None:
        """The row's maximum; None where there is no limit."""
        if resource == HOST and self._owner and HOST not in self._limits:
            return None
        return self._limits.get(resource, 0)

    def used(self, resource: str) -> int:
        """In use, with what was taken here."""
        return self._used.get(resource, 0) + self.taken.get(resource, 0)

    def most(self, gpus: int) -> int | None:
        """How many such machines the quota allows in all; None without a limit."""
        resource, amount = self.price(gpus)
        limit = self.maximum(resource)
        return None if limit is None else limit // amount

    def left(self, gpus: int) -> int | None:
        """How many more such machines the quota allows; None without a limit."""
        resource, amount = self.price(gpus)
        limit = self.maximum(resource)
        return None if limit is None else max(0, limit - self.used(resource)) // amount

    def take(self, gpus: int, machines: int) -> None:
        """Notes that so many machines are booked."""
        resource, amount = self.price(gpus)
        if self.maximum(resource) is not None:
            self.taken[resource] = self.taken.get(resource, 0) + amount * machines
