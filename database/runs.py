"""Runs: how they are listed for their workflows, and claim their machine."""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import case, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from database.events import record_event
from database.operations import BATCH_SIZE, WAITING_FOR_ENGINE
from database.run_locks import lock_live_run, refuse_ending
from database.tables import Claim, Cluster, Machine, Operation, Run
from database.transitions import move_machine, move_node
from domain.states import FINAL_RUN_STATES, MachineState, NodeStatus, RunState


class MachineClaimedError(Exception):
    """Another run still holds the machine. Passing: that run ends or the watchdog ends it."""


@dataclass(frozen=True, slots=True)
class OperationSummary:
    """What the operation's workflow fans out over."""

    action: str
    tenant_id: str
    cluster: str | None
    runs: int


async def begin_operation(session: AsyncSession, operation_id: uuid.UUID) -> OperationSummary:
    """Marks a pending operation as running; idempotent."""
    await session.execute(
        update(Operation)
        .where(Operation.id == operation_id, Operation.state == RunState.PENDING)
        .values(
            state=RunState.RUNNING,
            started_at=func.now(),
            message=case((Operation.message.startswith(WAITING_FOR_ENGINE), ""), else_=Operation.message),
        )
    )
    row = (
        await session.execute(
            select(Operation.action, Operation.tenant_id, Operation.run_count, Cluster.name)
            .outerjoin(Cluster, Cluster.id == Operation.cluster_id)
            .where(Operation.id == operation_id)
        )
    ).one()
    return OperationSummary(action=row.action, tenant_id=row.tenant_id, cluster=row.name, runs=row.run_count)


async def runs_of_batch(session: AsyncSession, operation_id: uuid.UUID, batch: int) -> list[Run]:
    """The runs of one batch that have not ended, in order."""
    rows = await session.scalars(
        select(Run)
        .where(
            Run.operation_id == operation_id,
            Run.position >= batch * BATCH_SIZE,
            Run.position < (batch + 1) * BATCH_SIZE,
            Run.state.not_in(FINAL_RUN_STATES),
        )
        .order_by(Run.position)
    )
    return list(rows)


async def open_runs(session: AsyncSession, operation_id: uuid.UUID) -> list[Run]:
    """Every run of an operation that has not ended."""
    rows = await session.scalars(
        select(Run)
        .where(Run.operation_id == operation_id, Run.state.not_in(FINAL_RUN_STATES))
        .order_by(Run.position)
    )
    return list(rows)


async def claim_machine(session: AsyncSession, run_id: uuid.UUID) -> tuple[Run, Machine]:
    """Takes the machine of a live run under a new, higher token; repeated calls keep the token.

    Raises SupersededError, RunCanceledError, and MachineClaimedError while a live run of another node holds
    the machine.
    """
    run, node = await lock_live_run(session, run_id)
    refuse_ending(run)
    machine_id = node.machine_id if node else run.machine_id
    claim = (
        await session.execute(select(Claim).where(Claim.machine_id == machine_id).with_for_update())
    ).scalar_one()
    machine = (await session.execute(select(Machine).where(Machine.id == machine_id))).scalar_one()
    if claim.run_id == run.id:
        return run, machine
    if claim.run_id is not None:
        holder = (await session.execute(select(Run).where(Run.id == claim.run_id))).scalar_one()
        ended = RunState(holder.state) in FINAL_RUN_STATES
        # A newer run of the same node takes over from an older one: the generation has decided.
        if not ended and (node is None or holder.node_id != node.id):
            raise MachineClaimedError(
                f"machine {machine.name} is held by {holder.action} of {holder.name} "
                f"(operation {holder.operation_id})"
            )
    claim.token += 1
    claim.run_id = run.id
    claim.claimed_at = datetime.now(UTC)
    run.claim_token = claim.token
    run.state = RunState.RUNNING
    run.waiting = None
    run.started_at = datetime.now(UTC)
    if node is not None:
        node.instance_id = machine.id
        if NodeStatus(node.status) is NodeStatus.ACQUIRING:
            move_node(node, NodeStatus.PREPARING, f"Preparing on machine {machine.name}")
    elif MachineState(machine.state) is MachineState.JOINING:
        move_machine(machine, MachineState.VERIFYING, "Waiting for SSH, then reading the machine's facts")
    record_event(
        session,
        tenant_id=machine.tenant_id,
        type="machine.claimed",
        subject=f"machine/{machine.id}",
        actor=f"run/{run.id}",
        token=claim.token,
        action=run.action,
        name=run.name,
    )
    return run, machine
