"""Operations as they are read: one, a list, counts of their runs, progress, steps."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.ext.asyncio import AsyncSession

from database.pages import Page, PageRequest, page_of
from database.refusals import not_found
from database.tables import Operation, Run, StepRun


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one run is; `step` is the last step that began."""

    name: str
    subject: str
    state: str
    step: str | None
    card: dict[str, Any] | None
    started_at: datetime | None
    ended_at: datetime | None


async def find_operation(session: AsyncSession, tenant_id: str, operation_id: str) -> Operation:
    """One operation of the tenant; Refusal NOT_FOUND otherwise, also for what is no id at all."""
    try:
        key = uuid.UUID(operation_id)
    except ValueError:
        key = None
    operation = await session.scalar(
        select(Operation).where(Operation.id == key, Operation.tenant_id == tenant_id)
    )
    if operation is None:
        raise not_found(f"there is no operation {operation_id}")
    return operation


async def operation_of_request(session: AsyncSession, tenant_id: str, request_id: str) -> Operation | None:
    """The operation that took this request id."""
    found: Operation | None = await session.scalar(
        select(Operation).where(Operation.tenant_id == tenant_id, Operation.request_id == request_id)
    )
    return found


async def newest_operations(session: AsyncSession, tenant_id: str, limit: int) -> list[Operation]:
    """The tenant's newest operations, newest first."""
    return list(
        await session.scalars(
            select(Operation)
            .where(Operation.tenant_id == tenant_id)
            .order_by(Operation.created_at.desc(), Operation.id)
            .limit(limit)
        )
    )


async def list_operations(
    session: AsyncSession,
    tenant_id: str,
    request: PageRequest,
    *,
    cluster_id: str | None = None,
    state: str | None = None,
) -> Page:
    """The tenant's operations, newest first."""
    query = select(Operation).where(Operation.tenant_id == tenant_id)
    if cluster_id is not None:
        query = query.where(Operation.cluster_id == cluster_id)
    if state is not None:
        query = query.where(Operation.state == state)
    return await page_of(
        session,
        query,
        [Operation.created_at, Operation.id],
        request,
        kinds=(datetime.fromisoformat, uuid.UUID),
        descending=True,
    )


async def count_runs(
    session: AsyncSession, operation_ids: Sequence[uuid.UUID]
) -> dict[uuid.UUID, dict[str, int]]:
    """How many runs of each operation are in which state."""
    counts: dict[uuid.UUID, dict[str, int]] = {operation_id: {} for operation_id in operation_ids}
    for row in await session.execute(
        select(Run.operation_id, Run.state, func.count().label("runs"))
        .where(Run.operation_id.in_(operation_ids))
        .group_by(Run.operation_id, Run.state)
    ):
        counts[row.operation_id][row.state] = row.runs
    return counts


async def progress_of(session: AsyncSession, operation_id: uuid.UUID) -> list[Progress]:
    """Every run of an operation in its order, with the last step that began."""
    last = (
        select(StepRun.run_id, StepRun.name)
        .join(Run, Run.id == StepRun.run_id)
        .where(Run.operation_id == operation_id)
        .ext(distinct_on(StepRun.run_id))
        .order_by(StepRun.run_id, StepRun.id.desc())
        .subquery()
    )
    rows = await session.execute(
        select(Run, last.c.name.label("step"))
        .outerjoin(last, last.c.run_id == Run.id)
        .where(Run.operation_id == operation_id)
        .order_by(Run.position)
    )
    return [
        Progress(
            name=run.name,
            subject=str(run.node_id or run.machine_id),
            state=run.state,
            step=step,
            card=run.card,
            started_at=run.started_at,
            ended_at=run.ended_at,
        )
        for run, step in rows
    ]


async def list_steps(session: AsyncSession, operation_id: uuid.UUID, request: PageRequest) -> Page:
    """The step runs of an operation with their runs, in the order in which they began."""
    query = select(StepRun, Run).join(Run, Run.id == StepRun.run_id).where(Run.operation_id == operation_id)
    return await page_of(session, query, [StepRun.id], request, kinds=(int,))
