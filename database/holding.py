"""Held runs: a step failed, everything is kept for inspection, and a person decides how it goes on.

Locks: operation, then nodes by id, then runs.
"""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from database.events import record_event
from database.matching import one_of
from database.operations import OPERATION_DEADLINE, OUTBOX_CHANNEL
from database.refusals import invalid_state
from database.run_locks import lock_live_run, lock_runs, refuse_ending
from database.run_names import check_names
from database.tables import Node, Operation, Outbox, Run
from domain.failures import FailureCard
from domain.holds import Verdict
from domain.states import FINAL_RUN_STATES, NODE_PASSING, NodeStatus, RunState

_DECIDED = {Verdict.RESUME: "resumed", Verdict.ABORT: "given up"}
# How many runs a refusal names at most.
_MOST_NAMED = 20


async def hold_run(session: AsyncSession, run_id: uuid.UUID, number: int, card: FailureCard) -> None:
    """Marks a live run as held for the `number`th time; idempotent.

    Raises SupersededError, and RunCanceledError when its end has been asked for meanwhile.
    """
    operation = await lock_operation(session, run_id)
    run, node = await lock_live_run(session, run_id)
    refuse_ending(run)
    if run.holds >= number:
        return
    run.holds = number
    run.state = RunState.HELD
    run.waiting = None
    run.card = card.model_dump(mode="json")
    if node is not None:
        node.message = f"held: {card.text()} Then resume or abort the operation's run of this node."
        # It waits for a person, for as long as that takes.
        node.status_deadline = None
    if operation.state == RunState.RUNNING:
        operation.state = RunState.HELD
    record_event(
        session,
        tenant_id=operation.tenant_id,
        type=f"{run.kind}.{run.action}.held",
        subject=f"{run.kind}/{run.node_id or run.machine_id}",
        actor=f"run/{run.id}",
        message=card.text(),
    )


async def lock_operation(session: AsyncSession, run_id: uuid.UUID) -> Operation:
    """The operation of a run, locked; before any node or run is."""
    return (
        await session.execute(
            select(Operation)
            .join(Run, Run.operation_id == Operation.id)
            .where(Run.id == run_id)
            .with_for_update(of=Operation)
            .execution_options(populate_existing=True)
        )
    ).scalar_one()


async def decide(
    session: AsyncSession,
    operation: Operation,
    verdict: Verdict,
    *,
    actor: str,
    names: Sequence[str] | None = None,
) -> list[str]:
    """Decides about the held runs of an operation, all of them or those of the nodes in `names`.

    Returns their names. Raises Refusal: INVALID_INPUT for names the operation is not about, INVALID_STATE
    when one of them is not held, or without names none is.
    """
    await session.refresh(operation, with_for_update=True)
    await check_names(session, operation, names)
    runs = await _held(session, operation, names)
    for run, node in runs:
        run.state = RunState.RUNNING
        if verdict is Verdict.RESUME:
            # It is of the past now; the run ends with a card of its own if it fails again.
            run.card = None
        if node is not None and node.generation == run.generation:
            _tell(node, f"{_DECIDED[verdict]} by {actor}")
        session.add(Outbox(operation_id=operation.id, desired=verdict.value, run_id=run.id, hold=run.holds))
        record_event(
            session,
            tenant_id=operation.tenant_id,
            type=f"{run.kind}.{run.action}.{verdict}",
            subject=f"{run.kind}/{run.node_id or run.machine_id}",
            actor=actor,
        )
    await session.flush()
    await settle_hold(session, operation)
    await session.execute(text(f"NOTIFY {OUTBOX_CHANNEL}"))
    return [run.name for run, _ in runs]


def _tell(node: Node, message: str) -> None:
    """The node no longer waits for a person; it must get on within its time again."""
    now = datetime.now(UTC)
    passing = NODE_PASSING.get(NodeStatus(node.status))
    node.message = message
    node.status_deadline = now + passing.deadline if passing else None
    node.updated_at = now


async def _held(
    session: AsyncSession, operation: Operation, names: Sequence[str] | None
) -> list[tuple[Run, Node | None]]:
    """The held runs with their nodes, locked after these; a refusal when one that is named is not held."""
    mine = Run.operation_id == operation.id
    mine = mine & (Run.state == RunState.HELD if names is None else one_of(Run.name, names))
    found = await lock_runs(session, mine)
    if other := [f"{run.name} is {run.state}" for run, _ in found if run.state != RunState.HELD]:
        raise invalid_state(f"not held: {', '.join(other[:_MOST_NAMED])}")
    if not found:
        raise invalid_state(f"the operation is {operation.state}, and no run of it is held")
    return found


async def settle_hold(session: AsyncSession, operation: Operation) -> None:
    """A held operation runs again once none of its runs is held any more. The operation must be locked.

    Nothing ends it for being late while it is held, and it has all of its time again after that.
    """
    if operation.state != RunState.HELD:
        return
    held = await session.scalar(
        select(func.count()).where(
            Run.operation_id == operation.id, Run.state == RunState.HELD, Run.state.not_in(FINAL_RUN_STATES)
        )
    )
    if not held:
        operation.state = RunState.RUNNING
        operation.deadline = max(operation.deadline, datetime.now(UTC) + OPERATION_DEADLINE)
