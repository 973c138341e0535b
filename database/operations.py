"""Operations and their runs: how they are put in, and how their ends add up."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import func, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from database.events import record_event
from database.operation_cards import card_of
from database.refusals import Refusal, RefusalCode
from database.tables import Operation, Outbox, Run
from domain.failures import FailureCard
from domain.states import FINAL_RUN_STATES, RunState, combined_state

# What an operation may take in all before the watchdog ends it.
OPERATION_DEADLINE = timedelta(hours=48)
# How long the watchdog leaves a freshly submitted operation alone.
FIRST_CHECK = timedelta(seconds=15)
OUTBOX_CHANNEL = "bringup_outbox"
# Begins the message of an operation whose workflow could not be started yet.
WAITING_FOR_ENGINE = "waiting for the workflow engine: "
# A batch workflow drives this many runs.
BATCH_SIZE = 500


@dataclass(frozen=True, slots=True)
class NewRun:
    """One run to put in with its operation. Exactly one of node and machine."""

    name: str
    generation: int
    node_id: uuid.UUID | None = None
    machine_id: str | None = None
    # A retry: the run before it, its plan, and the step at which this one goes on.
    retry_of: uuid.UUID | None = None
    plan_digest: str | None = None
    first_step: int = 0


async def claim_request_id(
    session: AsyncSession,
    *,
    operation_id: uuid.UUID,
    tenant_id: str,
    request_id: str,
    action: str,
    actor: str,
    cluster_id: str | None = None,
) -> None:
    """Puts the operation's row in, so that its request id is taken while this transaction lasts.

    Waits for another transaction that holds the same id. Raises Refusal (CONFLICT with the first operation's
    id) when that one was committed. `submit_operation` completes the row in the same transaction.
    """
    now = datetime.now(UTC)
    claimed = await session.execute(
        upsert(Operation)
        .values(
            id=operation_id,
            tenant_id=tenant_id,
            cluster_id=cluster_id,
            action=action,
            request_id=request_id,
            state=RunState.PENDING,
            created_by=actor,
            deadline=now + OPERATION_DEADLINE,
            next_check_at=now + FIRST_CHECK,
        )
        .on_conflict_do_nothing(
            index_elements=[Operation.tenant_id, Operation.request_id],
            index_where=Operation.request_id.is_not(None),
        )
        .returning(Operation.id)
    )
    if claimed.scalar_one_or_none() is not None:
        return
    first = await session.scalar(
        select(Operation.id).where(Operation.tenant_id == tenant_id, Operation.request_id == request_id)
    )
    raise Refusal(
        RefusalCode.CONFLICT,
        f"request id {request_id} was used before, by operation {first}; nothing was done",
        operation_id=first,
    )


async def submit_operation(
    session: AsyncSession,
    *,
    operation_id: uuid.UUID,
    tenant_id: str,
    action: str,
    actor: str,
    runs: Sequence[NewRun],
    request_id: str | None = None,
    cluster_id: str | None = None,
    machine_id: str | None = None,
    message: str = "",
    card: FailureCard | None = None,
    retry_of: uuid.UUID | None = None,
) -> None:
    """Writes operation, runs, event and outbox row, and wakes the dispatchers at commit.

    A row that `claim_request_id` put in is completed. An operation without runs has nothing to do: it is
    written as ended, failed when `card` says why.
    """
    now = datetime.now(UTC)
    ended = not runs
    values = {
        "tenant_id": tenant_id,
        "cluster_id": cluster_id,
        "machine_id": machine_id,
        "action": action,
        "request_id": request_id,
        "retry_of": retry_of,
        "state": RunState.PENDING if runs else RunState.FAILED if card else RunState.SUCCEEDED,
        "message": message,
        "card": card.model_dump(mode="json") if card else None,
        "run_count": len(runs),
        "created_by": actor,
        "ended_at": now if ended else None,
        "deadline": now + OPERATION_DEADLINE,
        "next_check_at": now + FIRST_CHECK,
    }
    await session.execute(
        upsert(Operation)
        .values(id=operation_id, **values)
        .on_conflict_do_update(index_elements=[Operation.id], set_=values)
    )
    await session.flush()
    if runs:
        await session.execute(
            insert(Run),
            [
                {
                    "id": uuid.uuid4(),
                    "operation_id": operation_id,
                    "position": position,
                    "kind": "node" if run.node_id else "machine",
                    "node_id": run.node_id,
                    "machine_id": run.machine_id,
                    "name": run.name,
                    "action": action,
                    "generation": run.generation,
                    "retry_of": run.retry_of,
                    "plan_digest": run.plan_digest,
                    "first_step": run.first_step,
                    "state": RunState.PENDING,
                }
                for position, run in enumerate(runs)
            ],
        )
        session.add(Outbox(operation_id=operation_id, desired=RunState.RUNNING))
        await session.execute(text(f"NOTIFY {OUTBOX_CHANNEL}"))
    record_event(
        session,
        tenant_id=tenant_id,
        type="operation.submitted",
        subject=f"operation/{operation_id}",
        actor=actor,
        action=action,
        runs=len(runs),
    )


async def close_operation(session: AsyncSession, operation_id: uuid.UUID) -> RunState:
    """Adds up the runs' results once all have ended; idempotent. Returns the operation's state."""
    operation = (
        await session.execute(select(Operation).where(Operation.id == operation_id).with_for_update())
    ).scalar_one()
    if operation.ended_at is not None:
        return RunState(operation.state)
    counts = {
        RunState(state): count
        for state, count in await session.execute(
            select(Run.state, func.count()).where(Run.operation_id == operation_id).group_by(Run.state)
        )
    }
    if any(state not in FINAL_RUN_STATES for state in counts):
        return RunState(operation.state)
    state = combined_state(counts, canceled=operation.canceled_by is not None)
    card = operation.card or await card_of(session, operation, state, counts)
    await session.execute(
        update(Operation)
        .where(Operation.id == operation_id)
        .values(state=state, ended_at=func.now(), card=card)
    )
    record_event(
        session,
        tenant_id=operation.tenant_id,
        type="operation.ended",
        subject=f"operation/{operation_id}",
        actor="workflow",
        state=state,
        runs={str(key): value for key, value in counts.items()},
    )
    return state
