"""Held runs: a step failed, everything is kept for inspection, and a person decides how it goes on.

Locks: operation, then node, then run.
"""

import uuid
from collections.abc import Sequence
from enum import StrEnum

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from database.events import record_event
from database.matching import one_of
from database.operations import OUTBOX_CHANNEL
from database.refusals import Detail, invalid, invalid_state
from database.run_locks import RunCanceledError, lock_live_run
from database.tables import Operation, Outbox, Run
from domain.failures import FailureCard
from domain.states import ENDING_RUN_STATES, FINAL_RUN_STATES, RunState


class Verdict(StrEnum):
    """What a person decides about a held run."""

    RESUME = "resume"  # run the failed step again, and go on
    ABORT = "abort"  # give it up: the run ends as failed with the step's card


async def hold_run(session: AsyncSession, run_id: uuid.UUID, number: int, card: FailureCard) -> None:
    """Marks a live run as held for the `number`th time; idempotent.

    Raises SupersededError, and RunCanceledError when its end has been asked for meanwhile.
    """
    operation = await _lock_operation(session, run_id)
    run, node = await lock_live_run(session, run_id)
    if RunState(run.state) in ENDING_RUN_STATES:
        raise RunCanceledError(f"{run.action} of {run.name} was cancelled by {run.canceled_by}")
    if run.holds >= number:
        return
    run.holds = number
    run.state = RunState.HELD
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


async def _lock_operation(session: AsyncSession, run_id: uuid.UUID) -> Operation:
    return (
        await session.execute(
            select(Operation)
            .join(Run, Run.operation_id == Operation.id)
            .where(Run.id == run_id)
            .with_for_update(of=Operation)
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
    runs = await _held(session, operation, names)
    for run in runs:
        run.state = RunState.RUNNING
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
    return [run.name for run in runs]


async def _held(session: AsyncSession, operation: Operation, names: Sequence[str] | None) -> list[Run]:
    query = select(Run).where(Run.operation_id == operation.id)
    query = query.where(Run.state == RunState.HELD) if names is None else query.where(one_of(Run.name, names))
    runs = list(
        await session.scalars(
            query.order_by(Run.position).with_for_update().execution_options(populate_existing=True)
        )
    )
    if names is not None:
        known = {run.name for run in runs}
        if unknown := [name for name in dict.fromkeys(names) if name not in known]:
            raise invalid(*(Detail("names", f"the operation has no run of {name!r}") for name in unknown))
        if other := [f"{run.name} is {run.state}" for run in runs if run.state != RunState.HELD]:
            raise invalid_state(f"not held: {', '.join(other)}")
    if not runs:
        raise invalid_state(f"the operation is {operation.state}, and no run of it is held")
    return runs


async def settle_hold(session: AsyncSession, operation: Operation) -> None:
    """A held operation runs again once none of its runs is held any more. The operation must be locked."""
    if operation.state != RunState.HELD:
        return
    held = await session.scalar(
        select(func.count()).where(
            Run.operation_id == operation.id, Run.state == RunState.HELD, Run.state.not_in(FINAL_RUN_STATES)
        )
    )
    if not held:
        operation.state = RunState.RUNNING
