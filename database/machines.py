"""Machines (the fleet API's nodes): joined, found, listed, put into pools."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from database.capacity import GPU, HOST
from database.events import record_event
from database.machine_types import known_machine_types
from database.matching import one_of
from database.operations import NewRun, submit_operation
from database.pages import Page, PageRequest, page_of
from database.pools import is_offered, lock_pools
from database.refusals import Detail, conflict, invalid, invalid_state, not_found
from database.sites import find_site
from database.tables import Atom, Authorization, Booking, Claim, Machine, MachineType, Pool
from database.visibility import Kind, sees, show_owned
from domain.ids import new_id
from domain.states import MACHINE_PASSING, MachineState


@dataclass(frozen=True, slots=True)
class NewMachine:
    """A machine as it joins. `bmc` holds the controller's user and secret reference."""

    site_id: str
    address: str
    machine_type: str
    key_secret: str
    name: str | None = None
    port: int = 22
    user: str = "root"
    bmc_address: str | None = None
    bmc: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


async def find_machine(session: AsyncSession, tenant_id: str, machine_id: str) -> Machine:
    """A machine that the tenant sees; Refusal NOT_FOUND otherwise."""
    machine = await session.scalar(
        select(Machine)
        .join(Authorization, sees(tenant_id, Kind.NODE, Machine.id))
        .where(Machine.id == machine_id)
    )
    if machine is None:
        raise not_found(f"there is no node {machine_id}")
    return machine


async def list_machines(
    session: AsyncSession,
    tenant_id: str,
    request: PageRequest,
    *,
    site_id: str | None = None,
    pool_id: str | None = None,
    state: str | None = None,
    only_pool: str | None = None,
) -> Page:
    """The machines that the tenant sees and that have not been retired, or those in the asked state.

    `only_pool`: others may not be seen.
    """
    query = select(Machine).join(Authorization, sees(tenant_id, Kind.NODE, Machine.id))
    query = query.where(Machine.state == state if state else Machine.state != MachineState.RETIRED)
    if site_id is not None:
        query = query.where(Machine.site_id == site_id)
    if pool_id is not None:
        query = query.where(Machine.pool_id == pool_id)
    if only_pool is not None:
        query = query.where(Machine.pool_id == only_pool)
    return await page_of(session, query, [Machine.id], request)


async def booked_machines(session: AsyncSession, machine_ids: Sequence[str]) -> set[str]:
    """Those of the machines on which a booking is live."""
    rows = await session.scalars(
        select(Booking.machine_id)
        .where(Booking.machine_id.in_(machine_ids), Booking.released_at.is_(None))
        .distinct()
    )
    return set(rows)


async def join_machine(
    session: AsyncSession, *, tenant_id: str, actor: str, asked: NewMachine
) -> tuple[Machine, uuid.UUID]:
    """Adds a machine in state `joining` with its atoms and its claim; returns it with its operation.

    CONFLICT when the address, or the management controller, belongs to a machine that has joined.
    """
    site = await find_site(session, tenant_id, asked.site_id)
    kind = (await known_machine_types(session, tenant_id)).get(asked.machine_type)
    if kind is None:
        raise invalid(Detail("machineType", f"there is no machine type {asked.machine_type}"))
    machine_id = new_id("node")
    now = datetime.now(UTC)
    machine: Machine | None = await session.scalar(
        upsert(Machine)
        .values(
            id=machine_id,
            tenant_id=tenant_id,
            site_id=site.id,
            name=asked.name or f"node-{machine_id[-8:]}",
            ownership="tenant" if site.custom else "platform",
            machine_type=asked.machine_type,
            address=asked.address,
            port=asked.port,
            ssh_user=asked.user,
            key_secret=asked.key_secret,
            bmc_address=asked.bmc_address,
            bmc=dict(asked.bmc),
            labels=dict(asked.labels),
            state=MachineState.JOINING,
            state_deadline=now + MACHINE_PASSING[MachineState.JOINING].deadline,
            message="waiting for the first contact",
        )
        .on_conflict_do_nothing()
        .returning(Machine)
    )
    if machine is None:
        raise conflict(
            f"a machine with address {asked.address} port {asked.port}"
            + (f" or management controller {asked.bmc_address}" if asked.bmc_address else "")
            + " has joined already"
        )
    operation_id = await _prepare(session, tenant_id, actor, machine, kind)
    return machine, operation_id


async def _prepare(
    session: AsyncSession, tenant_id: str, actor: str, machine: Machine, kind: MachineType
) -> uuid.UUID:
    session.add(Claim(machine_id=machine.id, token=0))
    await _show(session, machine)
    await session.execute(
        insert(Atom),
        [
            {"machine_id": machine.id, "resource": HOST, "number": 0},
            *(
                {"machine_id": machine.id, "resource": GPU, "number": number}
                for number in range(kind.gpu_count)
            ),
        ],
    )
    record_event(
        session,
        tenant_id=tenant_id,
        type="machine.joining",
        subject=f"machine/{machine.id}",
        actor=actor,
        address=machine.address,
    )
    operation_id = uuid.uuid4()
    await submit_operation(
        session,
        operation_id=operation_id,
        tenant_id=tenant_id,
        action="join",
        actor=actor,
        runs=[NewRun(name=machine.name, generation=1, machine_id=machine.id)],
        machine_id=machine.id,
    )
    return operation_id


async def assign_pool(
    session: AsyncSession, *, tenant_id: str, actor: str, pool: Pool, machine_ids: Sequence[str]
) -> list[Machine]:
    """Puts unbooked machines into a pool of their site and GPU model; all of them or none.

    Holds the row of this pool and of those that the machines leave, so that no create books them meanwhile.
    """
    wanted = sorted(set(machine_ids))
    asked = (
        select(Machine).where(one_of(Machine.id, wanted), Machine.tenant_id == tenant_id).order_by(Machine.id)
    )
    before = list(await session.scalars(asked))
    unknown = sorted(set(wanted) - {machine.id for machine in before})
    if unknown:
        raise not_found(f"there is no node {', '.join(unknown)}", "nodeIds")
    await lock_pools(session, sorted({pool.id, *(m.pool_id for m in before if m.pool_id)}))
    machines = list(await session.scalars(asked.with_for_update().execution_options(populate_existing=True)))
    types = await known_machine_types(session, tenant_id)
    problems = [
        Detail(f"nodeIds[{machine_ids.index(machine.id)}]", reason)
        for machine in machines
        for reason in _mismatch(machine, types[machine.machine_type], pool)
    ]
    if problems:
        raise invalid(*problems)
    await _check_movable(session, pool, machines)
    for machine in machines:
        if machine.pool_id != pool.id:
            record_event(
                session,
                tenant_id=tenant_id,
                type="machine.pool-assigned",
                subject=f"machine/{machine.id}",
                actor=actor,
                poolId=pool.id,
                before=machine.pool_id,
            )
    await session.execute(
        update(Machine)
        .where(one_of(Machine.id, wanted), Machine.pool_id.is_distinct_from(pool.id))
        .values(pool_id=pool.id, version=Machine.version + 1)
        .execution_options(synchronize_session=False)
    )
    moved = list(await session.scalars(asked.execution_options(populate_existing=True)))
    for machine in moved:
        await _show(session, machine)
    return moved


async def _show(session: AsyncSession, machine: Machine) -> None:
    attributes = {
        "siteId": machine.site_id,
        "poolId": machine.pool_id,
        "machineType": machine.machine_type,
        "ownership": machine.ownership,
    }
    await show_owned(session, machine.tenant_id, Kind.NODE, machine.id, attributes)


def _mismatch(machine: Machine, kind: MachineType, pool: Pool) -> list[str]:
    reasons = []
    if machine.site_id != pool.site_id:
        reasons.append(f"{machine.id} stands at site {machine.site_id}, the pool's is {pool.site_id}")
    if kind.gpu_model != pool.gpu_model:
        reasons.append(
            f"{machine.id} is a {kind.name} with GPU model {kind.gpu_model or 'none'}, "
            f"the pool's is {pool.gpu_model or 'none'}"
        )
    return reasons


async def _check_movable(session: AsyncSession, pool: Pool, machines: Sequence[Machine]) -> None:
    if pool.archived_at is not None:
        raise invalid_state(f"pool {pool.id} is archived")
    if any(machine.ownership == "tenant" for machine in machines) and await is_offered(session, pool.id):
        raise invalid_state(
            f"pool {pool.id} is offered to other tenants, and nodes that a tenant owns are for itself only"
        )
    moving = [machine for machine in machines if machine.pool_id != pool.id]
    gone = [m.id for m in moving if m.state in (MachineState.RETIRING, MachineState.RETIRED)]
    if gone:
        raise invalid_state(f"retired or being retired: {', '.join(gone)}")
    booked = await booked_machines(session, [machine.id for machine in moving])
    if booked:
        raise invalid_state(f"booked, so they stay in their pool: {', '.join(sorted(booked))}")
