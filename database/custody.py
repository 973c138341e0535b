"""Custody: a node's end gives its machine back, and the node's name is free at once.

The machine passes into `cleaning` under an operation of its own, or into `failed` when nothing could
clean it. Either way the booking ends here, and only a machine that is `ready` again can be booked.
"""

import uuid
from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from database.bookings import lock_for_release, release_reservation
from database.events import record_event
from database.operations import NewRun, submit_operation
from database.run_locks import SupersededError, lock_live_run
from database.tables import Machine, Node, Run
from database.transitions import close_run, move_machine, move_node
from domain.failures import FailureCard
from domain.states import FINAL_RUN_STATES, MachineState, NodeStatus, RunState


async def hand_over_node(session: AsyncSession, run_id: uuid.UUID, card: FailureCard | None) -> RunState:
    """Ends a terminate run: node Terminated, booking released, machine on its way; idempotent.

    `card` says what went wrong on the machine, if anything did. The run still succeeds: the node is gone.
    """
    run = (await session.execute(select(Run).where(Run.id == run_id))).scalar_one()
    if RunState(run.state) in FINAL_RUN_STATES:
        return RunState(run.state)
    reservation_id = await session.scalar(select(Node.reservation_id).where(Node.id == run.node_id))
    # Quota rows come before nodes in the one order in which locks are taken.
    quotas = await lock_for_release(session, reservation_id)
    try:
        run, node = await lock_live_run(session, run_id)
    except SupersededError:
        await session.refresh(run)
        close_run(run, RunState.SUPERSEDED, card)
        return RunState.SUPERSEDED
    assert node is not None  # a terminate run is a node's
    await release_reservation(session, reservation_id, quotas)
    machine_id = node.machine_id
    move_node(node, NodeStatus.TERMINATED, card.text() if card else "")
    node.reservation_id = None
    node.machine_id = None
    node.instance_id = None
    node.hostname = None
    node.private_ip = None
    if not node.fixed:
        node.removed_at = datetime.now(UTC)
    close_run(run, RunState.SUCCEEDED, card)
    record_event(
        session,
        tenant_id=node.tenant_id,
        type="node.terminated",
        subject=f"node/{node.id}",
        actor=f"run/{run.id}",
        name=node.name,
        machine=machine_id,
        problem=card.text() if card else None,
    )
    if machine_id is not None:
        await _send_to_cleaning(session, machine_id, run, card)
    return RunState.SUCCEEDED


async def _send_to_cleaning(
    session: AsyncSession, machine_id: str, run: Run, card: FailureCard | None
) -> None:
    machine = (
        await session.execute(select(Machine).where(Machine.id == machine_id).with_for_update())
    ).scalar_one()
    if MachineState(machine.state) is not MachineState.READY:
        return
    if card is not None and machine.bmc_address is None:
        # Nothing can wipe it from outside, and its own clean-up did not work: held back from capacity.
        move_machine(machine, MachineState.FAILED, card.text())
        return
    move_machine(machine, MachineState.CLEANING, f"Cleaning after {run.name}")
    await submit_operation(
        session,
        operation_id=uuid.uuid4(),
        tenant_id=machine.tenant_id,
        action="clean",
        actor=f"run/{run.id}",
        machine_id=machine.id,
        runs=[NewRun(name=machine.name, generation=1, machine_id=machine.id)],
    )
