"""What a worker would write, by hand: runs that end, steps that print."""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select, update

from database.steps import STDERR, STDOUT, StepEnd, append_log, begin_step, end_step
from database.tables import Operation, Run, StepRun
from database.unit_of_work import Database
from domain.failures import FailureClass, failure_card
from domain.states import RunState, combined_state


async def end_runs(database: Database, operation_id: str, states: Mapping[str, RunState]) -> None:
    """Ends the named runs, and with the last one the operation. A failed one gets a card."""
    now = datetime.now(UTC)
    card = failure_card(FailureClass.EXIT, "exited with status 3", seen=now, step="hello")
    key = uuid.UUID(operation_id)
    async with database.begin() as session:
        for name, state in states.items():
            failed = card.model_dump(mode="json") if state is RunState.FAILED else None
            ended: dict[str, Any] = {"state": state, "card": failed, "started_at": now, "ended_at": now}
            await session.execute(
                update(Run).where(Run.operation_id == key, Run.name == name).values(**ended)
            )
        found = list(await session.scalars(select(Run.state).where(Run.operation_id == key)))
        counts = {RunState(state): found.count(state) for state in found}
        if not counts.keys() & {RunState.PENDING, RunState.RUNNING}:
            values = {"state": combined_state(counts), "started_at": now, "ended_at": now}
            await session.execute(update(Operation).where(Operation.id == key).values(**values))


async def print_in_step(
    database: Database,
    operation_id: str,
    node: str,
    step: str,
    *,
    machine: str,
    stdout: bytes = b"",
    stderr: bytes = b"",
    position: int = 0,
    attempt: int = 1,
) -> None:
    """One attempt of one step, which prints and exits with 0."""
    began = await begin(
        database, operation_id, node, step, machine=machine, position=position, attempt=attempt
    )
    await print_more(database, began, stdout=stdout, stderr=stderr)
    await end(database, began)


async def begin(
    database: Database,
    operation_id: str,
    node: str,
    step: str,
    *,
    machine: str,
    position: int = 0,
    attempt: int = 1,
) -> int:
    """Begins one attempt of one step; returns the step run's id."""
    async with database.begin() as session:
        run = await session.scalar(
            select(Run).where(Run.operation_id == uuid.UUID(operation_id), Run.name == node)
        )
        assert run is not None
        record = await begin_step(
            session,
            run_id=run.id,
            position=position,
            attempt=attempt,
            name=step,
            uses="command",
            machine=machine,
        )
        return record.id


async def print_more(database: Database, step_run: int, *, stdout: bytes = b"", stderr: bytes = b"") -> None:
    """What a running step prints, behind what it printed before."""
    async with database.begin() as session:
        record = await session.get_one(StepRun, step_run)
        sizes = (record.stdout_size, record.stderr_size)
        for stream, size, data in zip((STDOUT, STDERR), sizes, (stdout, stderr), strict=True):
            if data:
                await append_log(session, record, stream, size, data)


async def end(database: Database, step_run: int, *, exit_status: int = 0) -> None:
    """The step exits."""
    state = RunState.FAILED if exit_status else RunState.SUCCEEDED
    async with database.begin() as session:
        record = await session.get_one(StepRun, step_run)
        await end_step(session, record, StepEnd(state, outcome="changed", exit_status=exit_status))
