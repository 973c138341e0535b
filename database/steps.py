"""Plans, step runs, and their logs."""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import exists, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from database.tables import LogChunk, PlanRow, Run, StepRun
from domain.failures import FailureCard
from domain.states import RunState

STDOUT, STDERR = 1, 2
CHUNK = 64 * 1024


class StaleWriterError(Exception):
    """Somebody else follows this step now, or has ended its record."""

    def __init__(self, step: StepRun) -> None:
        super().__init__(f"step {step.name} is followed by another worker, or its record has ended")


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
    """The step run of this attempt, made when it is not there yet; whoever followed it before is shut out."""
    values = {
        "run_id": run_id,
        "position": position,
        "attempt": attempt,
        "name": name,
        "uses": uses,
        "machine_id": machine,
        "state": RunState.RUNNING,
    }
    return (
        await session.scalars(
            insert(StepRun)
            .values(values)
            .on_conflict_do_update(
                index_elements=[StepRun.run_id, StepRun.position, StepRun.attempt],
                set_={StepRun.follower: StepRun.follower + 1},
            )
            .returning(StepRun),
            execution_options={"populate_existing": True},
        )
    ).one()


async def take_over_open_steps(session: AsyncSession, run_id: uuid.UUID) -> list[StepRun]:
    """The step runs of a run that have no end, in their order; whoever followed them before is shut out."""
    rows = await session.scalars(
        update(StepRun)
        .where(StepRun.run_id == run_id, StepRun.ended_at.is_(None))
        .values({StepRun.follower: StepRun.follower + 1})
        .returning(StepRun),
        execution_options={"populate_existing": True},
    )
    return sorted(rows, key=lambda step: (step.position, step.attempt))


async def may_have_left_something(session: AsyncSession, run_id: uuid.UUID) -> bool:
    """Whether a step of the run ended without its machine's word that it had: unreachable, or killed off."""
    unproven = exists().where(
        StepRun.run_id == run_id,
        StepRun.state == RunState.FAILED,
        StepRun.exit_status.is_(None),
        StepRun.signal.is_(None),
    )
    return bool(await session.scalar(select(unproven)))


async def machine_of_steps(session: AsyncSession, run_id: uuid.UUID) -> str:
    """The one machine that a run's steps ran on."""
    return (
        await session.execute(select(StepRun.machine_id).where(StepRun.run_id == run_id).distinct())
    ).scalar_one()


async def end_open_steps(
    session: AsyncSession, run_id: uuid.UUID, state: RunState, card: FailureCard | None
) -> list[str]:
    """Ends step runs that nobody will end any more, and returns their machines: there they may still run."""
    rows = await session.scalars(
        update(StepRun)
        .where(StepRun.run_id == run_id, StepRun.ended_at.is_(None))
        .values(
            state=state,
            card=card.model_dump(mode="json") if card else None,
            ended_at=datetime.now(UTC),
        )
        .returning(StepRun.machine_id)
    )
    return list(rows)


async def append_log(session: AsyncSession, step: StepRun, stream: int, start: int, data: bytes) -> None:
    """Appends bytes at `start`, which must be where the stored stream ends.

    Raises StaleWriterError otherwise, and when another follower has begun since `step` was read: of two
    workers that stream the same step only one can append, so the log has no gap and no repeat.
    """
    size = StepRun.stdout_size if stream == STDOUT else StepRun.stderr_size
    moved = await session.scalar(
        update(StepRun)
        .where(StepRun.id == step.id, StepRun.follower == step.follower, size == start)
        .values({size: start + len(data)})
        .returning(StepRun.id)
    )
    if moved is None:
        raise StaleWriterError(step)
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


async def end_step(session: AsyncSession, step: StepRun, end: StepEnd) -> None:
    """Records how the attempt ended; the first record stands.

    Raises StaleWriterError when it has ended before, or `step` was read by a follower of before.
    """
    ended = await session.scalar(
        update(StepRun)
        .where(StepRun.id == step.id, StepRun.follower == step.follower, StepRun.ended_at.is_(None))
        .values(
            state=end.state,
            outcome=end.outcome,
            exit_status=end.exit_status,
            signal=end.signal,
            card=end.card.model_dump(mode="json") if end.card else None,
            outputs=end.outputs,
            ended_at=datetime.now(UTC),
        )
        .returning(StepRun.id)
    )
    if ended is None:
        raise StaleWriterError(step)


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
