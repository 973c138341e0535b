"""What a worker would write, by hand: runs that end, steps that print."""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select, update

from database.steps import STDERR, STDOUT, StepEnd, append_log, begin_step, end_step
from database.tables import Operation, Run
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
        for stream, data in ((STDOUT, stdout), (STDERR, stderr)):
            if data:
                await append_log(session, record, stream, 0, data)
        await end_step(session, record.id, StepEnd(RunState.SUCCEEDED, outcome="changed", exit_status=0))
