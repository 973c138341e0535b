"""Ends of runs that are about a machine itself, and what contact with a machine leaves in its row."""

import uuid
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from database.events import record_event
from database.hardware import problem_text
from database.run_locks import RunCanceledError, SupersededError, lock_live_run
from database.tables import Machine, Run
from database.transitions import close_run, move_machine, move_node
from domain.states import MachineState, NodeStatus, RunState


async def machine_ready(session: AsyncSession, run_id: uuid.UUID) -> None:
    """Ends a machine's run well: the machine is `ready` and can be booked; idempotent."""
    try:
        run, _ = await lock_live_run(session, run_id)
    except (SupersededError, RunCanceledError):
        return
    machine = (
        await session.execute(select(Machine).where(Machine.id == run.machine_id).with_for_update())
    ).scalar_one()
    move_machine(machine, MachineState.READY, problem_text(machine.hardware) or "")
    close_run(run, RunState.SUCCEEDED, None)
    record_event(
        session,
        tenant_id=machine.tenant_id,
        type="machine.ready",
        subject=f"machine/{machine.id}",
        actor=f"run/{run.id}",
        after=run.action,
    )


async def node_ready(session: AsyncSession, run_id: uuid.UUID, *, hostname: str, address: str) -> None:
    """Ends a node's run well: hostname and address are final; idempotent. Raises SupersededError."""
    state = await session.scalar(select(Run.state).where(Run.id == run_id))
    if state == RunState.SUCCEEDED:
        # Done before, by a try whose answer was lost.
        return
    run, node = await lock_live_run(session, run_id)
    assert node is not None, "a create run is a node's"
    node.hostname = hostname
    node.private_ip = address
    move_node(node, NodeStatus.READY, "")
    close_run(run, RunState.SUCCEEDED, None)
    record_event(
        session,
        tenant_id=node.tenant_id,
        type="node.ready",
        subject=f"node/{node.id}",
        actor=f"run/{run.id}",
        name=node.name,
        machine=node.machine_id,
    )


async def note_contact(
    session: AsyncSession, machine_id: str, *, facts: dict[str, Any], boot_id: str, host_key: str
) -> None:
    """Stores what a machine said of itself. The host key is pinned only where none was."""
    await session.execute(
        update(Machine)
        .where(Machine.id == machine_id)
        .values(
            facts=facts,
            boot_id=boot_id,
            host_key=func.coalesce(Machine.host_key, host_key),
            last_contact_at=datetime.now(UTC),
        )
    )


async def pin_host_key(session: AsyncSession, machine_id: str, host_key: str) -> None:
    """Replaces the pinned key; only after the provider announced a create or a reimage."""
    await session.execute(update(Machine).where(Machine.id == machine_id).values(host_key=host_key))
