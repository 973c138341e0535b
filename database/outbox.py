"""What the dispatcher and the watchdog read and write."""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import exists, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from database.operations import WAITING_FOR_ENGINE
from database.tables import Cluster, Operation, Outbox


async def lock_due_row(session: AsyncSession) -> Outbox | None:
    """One row that is due and that no other dispatcher holds, locked until the transaction ends.

    Of one operation's rows only the first that is left: a cancel is told after the start, or not before it
    is known that there will be none.
    """
    earlier = aliased(Outbox)
    waits = exists().where(
        earlier.operation_id == Outbox.operation_id,
        earlier.id < Outbox.id,
        earlier.dispatched_at.is_(None),
    )
    return (
        await session.scalars(
            select(Outbox)
            .where(Outbox.dispatched_at.is_(None), Outbox.due_at <= func.now(), ~waits)
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


async def put_off(session: AsyncSession, row: Outbox, error: str) -> None:
    """It could not be told; try again with back-off, at most every 10 s. The operation says why it waits."""
    row.attempts += 1
    row.last_error = error[:2000]
    row.due_at = datetime.now(UTC) + timedelta(seconds=min(10.0, 0.5 * 2 ** min(row.attempts, 6)))
    await session.execute(
        update(Operation)
        .where(
            Operation.id == row.operation_id,
            or_(Operation.message == "", Operation.message.startswith(WAITING_FOR_ENGINE)),
        )
        .values(message=WAITING_FOR_ENGINE + row.last_error)
    )


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


@dataclass(frozen=True, slots=True)
class DispatchOutline:
    """What the dispatcher must know of an operation to start its workflow."""

    tenant_id: str
    action: str
    cluster: str | None
    canceled: bool


async def dispatch_outline(session: AsyncSession, operation_id: uuid.UUID) -> DispatchOutline:
    """Reads the outline."""
    row = (
        await session.execute(
            select(Operation.tenant_id, Operation.action, Operation.canceled_by, Cluster.name)
            .outerjoin(Cluster, Cluster.id == Operation.cluster_id)
            .where(Operation.id == operation_id)
        )
    ).one()
    return DispatchOutline(
        tenant_id=row.tenant_id,
        action=row.action,
        cluster=row.name,
        canceled=row.canceled_by is not None,
    )
