"""What the dispatcher and the watchdog read and write."""

import uuid
from datetime import UTC, datetime, timedelta

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from database.tables import Operation, Outbox
from domain.states import RunState


async def lock_due_row(session: AsyncSession) -> Outbox | None:
    """One row that is due and that no other dispatcher holds, locked until the transaction ends."""
    return (
        await session.scalars(
            select(Outbox)
            .where(Outbox.dispatched_at.is_(None), Outbox.due_at <= func.now())
            .order_by(Outbox.id)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
    ).one_or_none()


def mark_dispatched(row: Outbox) -> None:
    """The workflow engine has taken it."""
    row.attempts += 1
    row.dispatched_at = datetime.now(UTC)
    row.last_error = ""


def put_off(row: Outbox, error: str) -> None:
    """It could not be told; try again with back-off, at most every 10 s."""
    row.attempts += 1
    row.last_error = error[:2000]
    row.due_at = datetime.now(UTC) + timedelta(seconds=min(10.0, 0.5 * 2 ** min(row.attempts, 6)))


async def operations_to_check(session: AsyncSession, every: timedelta, limit: int) -> list[Operation]:
    """Dispatched, unended operations whose check is due; taking them sets their next check."""
    waiting = select(Outbox.operation_id).where(Outbox.dispatched_at.is_(None))
    rows = list(
        await session.scalars(
            select(Operation)
            .where(
                Operation.ended_at.is_(None),
                Operation.next_check_at <= func.now(),
                Operation.id.not_in(waiting),
            )
            .order_by(Operation.next_check_at)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
    )
    for row in rows:
        row.next_check_at = datetime.now(UTC) + every
    return rows


async def operation_state(session: AsyncSession, operation_id: uuid.UUID) -> RunState:
    """The operation's state as recorded."""
    state = await session.scalar(select(Operation.state).where(Operation.id == operation_id))
    return RunState(state or RunState.FAILED)


async def check_soon(session: AsyncSession, operation_id: uuid.UUID) -> None:
    """Has the watchdog look again at its next round."""
    await session.execute(
        update(Operation).where(Operation.id == operation_id).values(next_check_at=func.now())
    )
