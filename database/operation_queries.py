"""Operations as they are read: one, a list, their summaries, progress, steps."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, and_, case, func, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.ext.asyncio import AsyncSession

from database.matching import one_of
from database.pages import Page, PageRequest, page_of
from database.refusals import not_found
from database.tables import Cluster, Machine, Operation, Run, StepRun
from domain.states import RunState
from domain.unfinished import UNREACHABLE_CLASSES, Unfinished


@dataclass(frozen=True, slots=True)
class Summary:
    """What an operation is about, and how its runs fare: by state, those of lost machines apart."""

    cluster: str | None
    machine: str | None
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one run is; `step` is the last step that began.

    `changes` counts the steps that have ended by what they did: "changed", "no-change", "skipped".
    """

    run: Run
    step: str | None
    unreachable: bool
    changes: dict[str, int]


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


def _unreachable() -> ColumnElement[bool]:
    """The same as `domain.unfinished` says of a run, in SQL."""
    lost = [str(one) for one in UNREACHABLE_CLASSES]
    return and_(
        Run.state == RunState.FAILED,
        Run.claim_token.is_not(None),
        func.coalesce(Run.card["failure_class"].astext.in_(lost), False),
    )


async def summaries_of(session: AsyncSession, operations: Sequence[Operation]) -> dict[uuid.UUID, Summary]:
    """The summary of each operation, in two queries for any number of them."""
    ids = [operation.id for operation in operations]
    counts: dict[uuid.UUID, dict[str, int]] = {operation_id: {} for operation_id in ids}
    shown = case((_unreachable(), Unfinished.UNREACHABLE.value), else_=Run.state).label("shown")
    rows = await session.execute(
        select(Run.operation_id, shown, func.count().label("runs"))
        .where(one_of(Run.operation_id, ids))
        .group_by(Run.operation_id, shown)
    )
    for row in rows:
        counts[row.operation_id][row.shown] = row.runs
    names = await session.execute(
        select(Operation.id, Cluster.name.label("cluster"), Machine.name.label("machine"))
        .outerjoin(Cluster, Cluster.id == Operation.cluster_id)
        .outerjoin(Machine, Machine.id == Operation.machine_id)
        .where(one_of(Operation.id, ids))
    )
    return {row.id: Summary(row.cluster, row.machine, counts[row.id]) for row in names}


async def progress_of(session: AsyncSession, operation_id: uuid.UUID) -> list[Progress]:
    """Every run of an operation in its order, with the last step that began, and what its steps did."""
    last = (
        select(StepRun.run_id, StepRun.name)
        .join(Run, Run.id == StepRun.run_id)
        .where(Run.operation_id == operation_id)
        .ext(distinct_on(StepRun.run_id))
        .order_by(StepRun.run_id, StepRun.id.desc())
        .subquery()
    )
    rows = await session.execute(
        select(Run, last.c.name.label("step"), _unreachable().label("unreachable"))
        .outerjoin(last, last.c.run_id == Run.id)
        .where(Run.operation_id == operation_id)
        .order_by(Run.position)
    )
    changes = await _changes_of(session, operation_id)
    return [Progress(run, step, unreachable, changes.get(run.id, {})) for run, step, unreachable in rows]


async def _changes_of(session: AsyncSession, operation_id: uuid.UUID) -> dict[uuid.UUID, dict[str, int]]:
    """How many steps of each run changed their machine, found nothing to change, or were skipped.

    Attempts of one step count once, and as a change if any of them applied it: a second attempt finds done
    what a first one did before it failed.
    """
    applied = func.bool_or(StepRun.outcome.in_(("changed", "verify-failed")))
    outcome = case((applied, "changed"), else_=func.min(StepRun.outcome)).label("outcome")
    steps = (
        select(StepRun.run_id, StepRun.position, outcome)
        .join(Run, Run.id == StepRun.run_id)
        .where(Run.operation_id == operation_id, StepRun.ended_at.is_not(None), StepRun.outcome.is_not(None))
        .group_by(StepRun.run_id, StepRun.position)
        .subquery()
    )
    rows = await session.execute(
        select(steps.c.run_id, steps.c.outcome, func.count().label("steps")).group_by(
            steps.c.run_id, steps.c.outcome
        )
    )
    changes: dict[uuid.UUID, dict[str, int]] = {}
    for row in rows:
        changes.setdefault(row.run_id, {})[row.outcome] = row.steps
    return changes


async def list_steps(
    session: AsyncSession, operation_id: uuid.UUID, request: PageRequest, *, name: str | None = None
) -> Page:
    """The step runs of an operation, or of its run of one name, with their runs, as they began."""
    query = select(StepRun, Run).join(Run, Run.id == StepRun.run_id).where(Run.operation_id == operation_id)
    if name is not None:
        query = query.where(Run.name == name)
    return await page_of(session, query, [StepRun.id], request, kinds=(int,))
