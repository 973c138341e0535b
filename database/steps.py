"""Plans, step runs, and their logs."""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from database.tables import LogChunk, PlanRow, Run, StepRun
from domain.failures import FailureCard
from domain.states import RunState

STDOUT, STDERR = 1, 2
CHUNK = 64 * 1024


class StaleWriterError(Exception):
    """Somebody else has appended to this log meanwhile; `size` is where it ends now."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the log now ends at {size}")
        self.size = size


@dataclass(frozen=True, slots=True)
class StepEnd:
    """How one attempt of a step ended."""

    state: RunState
    outcome: str | None = None
    exit_status: int | None = None
    signal: int | None = None
    card: FailureCard | None = None
    outputs: dict[str, Any] | None = None


async def store_plan(session: AsyncSession, run_id: uuid.UUID, digest: str, content: str) -> None:
    """Stores a compiled plan once, and notes it with the run."""
    await session.execute(insert(PlanRow).values(digest=digest, content=content).on_conflict_do_nothing())
    await session.execute(update(Run).where(Run.id == run_id).values(plan_digest=digest))


async def plan_of_run(session: AsyncSession, run_id: uuid.UUID) -> str:
    """The canonical text of a run's plan."""
    text = await session.scalar(
        select(PlanRow.content).join(Run, Run.plan_digest == PlanRow.digest).where(Run.id == run_id)
    )
    if text is None:
        raise LookupError(f"run {run_id} has no plan yet")
    return text


async def begin_step(
    session: AsyncSession,
    *,
    run_id: uuid.UUID,
    position: int,
    attempt: int,
    name: str,
    uses: str,
    machine: str,
) -> StepRun:
    """The step run of this attempt, made when it is not there yet."""
    made: StepRun | None = await session.scalar(
        insert(StepRun)
        .values(
            run_id=run_id,
            position=position,
            attempt=attempt,
            name=name,
            uses=uses,
            machine_id=machine,
            state=RunState.RUNNING,
        )
        .on_conflict_do_nothing()
        .returning(StepRun)
    )
    if made is not None:
        return made
    return (
        await session.execute(
            select(StepRun).where(
                StepRun.run_id == run_id, StepRun.position == position, StepRun.attempt == attempt
            )
        )
    ).scalar_one()


async def open_steps(session: AsyncSession, run_id: uuid.UUID) -> list[StepRun]:
    """The step runs of a run that have no end, in their order."""
    rows = await session.scalars(
        select(StepRun)
        .where(StepRun.run_id == run_id, StepRun.ended_at.is_(None))
        .order_by(StepRun.position, StepRun.attempt)
    )
    return list(rows)


async def end_open_steps(
    session: AsyncSession, run_id: uuid.UUID, state: RunState, card: FailureCard | None
) -> None:
    """Ends step runs that nobody will end any more; what they may have left is for the next claim to end."""
    await session.execute(
        update(StepRun)
        .where(StepRun.run_id == run_id, StepRun.ended_at.is_(None))
        .values(
            state=state,
            card=card.model_dump(mode="json") if card else None,
            ended_at=datetime.now(UTC),
        )
    )


async def append_log(session: AsyncSession, step: StepRun, stream: int, start: int, data: bytes) -> None:
    """Appends bytes at `start`, which must be where the stored stream ends.

    Raises StaleWriterError otherwise: of two workers that stream the same step only one can append, so the
    log has no gap and no repeat.
    """
    size = StepRun.stdout_size if stream == STDOUT else StepRun.stderr_size
    moved = await session.scalar(
        update(StepRun)
        .where(StepRun.id == step.id, size == start)
        .values({size: start + len(data)})
        .returning(StepRun.id)
    )
    if moved is None:
        raise StaleWriterError(
            (await session.execute(select(size).where(StepRun.id == step.id))).scalar_one()
        )
    await session.execute(
        insert(LogChunk),
        [
            {
                "step_run_id": step.id,
                "stream": stream,
                "start": start + offset,
                "day": step.started_at.astimezone(UTC).date(),
                "data": data[offset : offset + CHUNK],
            }
            for offset in range(0, len(data), CHUNK)
        ],
    )


async def end_step(session: AsyncSession, step_run_id: int, end: StepEnd) -> None:
    """Records how the attempt ended; the first record stands."""
    await session.execute(
        update(StepRun)
        .where(StepRun.id == step_run_id, StepRun.ended_at.is_(None))
        .values(
            state=end.state,
            outcome=end.outcome,
            exit_status=end.exit_status,
            signal=end.signal,
            card=end.card.model_dump(mode="json") if end.card else None,
            outputs=end.outputs,
            ended_at=datetime.now(UTC),
        )
    )


async def log_tail(session: AsyncSession, step: StepRun, stream: int, limit: int) -> bytes:
    """The last `limit` bytes of a stored stream."""
    size = (
        await session.execute(
            select(StepRun.stdout_size if stream == STDOUT else StepRun.stderr_size).where(
                StepRun.id == step.id
            )
        )
    ).scalar_one()
    rows = await session.scalars(
        select(LogChunk.data)
        .where(
            LogChunk.step_run_id == step.id,
            LogChunk.stream == stream,
            LogChunk.day == step.started_at.astimezone(UTC).date(),
            LogChunk.start + func.length(LogChunk.data) > size - limit,
        )
        .order_by(LogChunk.start)
    )
    return b"".join(rows)[-limit:]
