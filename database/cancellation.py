"""Cancelling: what has not begun ends at once, what runs is marked, and the dispatcher tells the engine.

Locks: operation, then nodes by id, then runs.
"""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from database.events import record_event
from database.holding import settle_hold
from database.matching import one_of
from database.operations import OUTBOX_CHANNEL
from database.refusals import invalid_state
from database.run_ends import end_node_run, end_run
from database.run_locks import lock_runs
from database.run_names import check_names
from database.tables import Node, Operation, Outbox, Run, StepRun
from domain.failures import FailureCard, FailureClass, failure_card
from domain.states import FINAL_RUN_STATES, RunState

_MARKABLE = (RunState.RUNNING, RunState.HELD)


async def cancel_operation(
    session: AsyncSession, operation: Operation, *, actor: str, names: Sequence[str] | None = None
) -> list[str]:
    """Asks for the end of an operation, or of its runs of the nodes in `names`; idempotent.

    Returns the names whose runs are concerned: those that are ending now, or had been asked to before. Raises
    Refusal: INVALID_INPUT for names it is not about, INVALID_STATE for a terminate, and when the operation or
    every run that is meant has already ended in another way.
    """
    await session.refresh(operation, with_for_update=True)
    await check_names(session, operation, names)
    if operation.action == "terminate":
        raise invalid_state(
            "a terminate cannot be cancelled: its nodes are given up, and its steps end by their own timeouts"
        )
    if operation.ended_at is not None:
        if operation.state == RunState.CANCELED:
            return []
        raise invalid_state(f"the operation has already ended: {operation.state}")
    runs = await _lock_open_runs(session, operation, names)
    await _end_unstarted(session, [pair for pair in runs if pair[0].claim_token is None], actor)
    claimed = []
    for run, node in runs:
        if run.claim_token is None or run.state not in _MARKABLE:
            continue
        claimed.append(run)
        run.state = RunState.CANCELING
        run.canceled_by = actor
        if node is not None and node.generation == run.generation:
            node.message = f"{run.action} is being cancelled, as {actor} asked"
    if names is None:
        _cancel_whole(session, operation, actor)
    else:
        session.add_all(
            Outbox(operation_id=operation.id, desired=RunState.CANCELED, run_id=run.id) for run in claimed
        )
        await session.flush()
        await settle_hold(session, operation)
    if names is None or claimed:
        await session.execute(text(f"NOTIFY {OUTBOX_CHANNEL}"))
    if names is None:
        return [run.name for run, _ in runs]
    return await _concerned(session, operation, names)


async def _concerned(session: AsyncSession, operation: Operation, names: Sequence[str]) -> list[str]:
    """Those of `names` whose run is ending or was cancelled; a refusal when none is."""
    query = select(Run.name, Run.state).where(Run.operation_id == operation.id, one_of(Run.name, names))
    states = [tuple(row) for row in await session.execute(query.order_by(Run.position))]
    concerned = [
        name for name, state in states if state == RunState.CANCELED or state not in FINAL_RUN_STATES
    ]
    if not concerned:
        ended = ", ".join(f"{name} is {state}" for name, state in states[:20])
        raise invalid_state(f"there is nothing left to cancel: {ended}")
    return concerned


def _cancel_whole(session: AsyncSession, operation: Operation, actor: str) -> None:
    if operation.canceled_by is not None:
        return
    operation.canceled_by = actor
    operation.state = RunState.CANCELING
    session.add(Outbox(operation_id=operation.id, desired=RunState.CANCELED))
    record_event(
        session,
        tenant_id=operation.tenant_id,
        type="operation.canceling",
        subject=f"operation/{operation.id}",
        actor=actor,
    )


async def _lock_open_runs(
    session: AsyncSession, operation: Operation, names: Sequence[str] | None
) -> list[tuple[Run, Node | None]]:
    """The runs that have not ended, with their nodes, locked after these."""
    mine = Run.operation_id == operation.id
    if names is not None:
        mine = mine & one_of(Run.name, names)
    return await lock_runs(session, mine & Run.state.not_in(FINAL_RUN_STATES))


async def _end_unstarted(session: AsyncSession, runs: Sequence[tuple[Run, Node | None]], actor: str) -> None:
    """Nothing has touched a machine for these: they end here."""
    now = datetime.now(UTC)
    for run, node in runs:
        run.canceled_by = actor
        said = f"{run.action} of {run.name} was cancelled before it had begun"
        if node is not None and node.generation == run.generation:
            end_node_run(session, run, node, RunState.CANCELED, _card(f"{said} by {actor}", now))
        else:
            # This says by whom.
            await end_run(session, run.id, RunState.CANCELED, _card(said, now))


def _card(message: str, now: datetime) -> FailureCard:
    return failure_card(FailureClass.CANCELLED, message, seen=now)


async def note_unconfirmed(
    session: AsyncSession, run_id: uuid.UUID, card: FailureCard, step: StepRun | None = None
) -> None:
    """Says, wherever it is shown, that a machine cannot confirm the end of a cancelled run, and why."""
    run = (await session.execute(select(Run).where(Run.id == run_id))).scalar_one()
    state, said = RunState.CANCEL_UNCONFIRMED, {"card": card.model_dump(mode="json")}
    await session.execute(
        update(Operation)
        .where(Operation.id == run.operation_id, Operation.state == RunState.CANCELING)
        .values(state=state)
    )
    if run.ended_at is None:
        await session.execute(
            update(Node)
            .where(Node.id == run.node_id, Node.generation == run.generation)
            .values(message=card.text())
        )
    await session.execute(
        update(Run).where(Run.id == run_id, Run.ended_at.is_(None)).values(state=state, **said)
    )
    if step is not None:
        await session.execute(
            update(StepRun)
            .where(StepRun.id == step.id, StepRun.ended_at.is_(None))
            .values(state=state, **said)
        )
