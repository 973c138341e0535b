"""Recording how an attempt of a step ended: the rest of its output, what it left, and its end, in one go."""

import threading
from dataclasses import replace
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from activities.access import Access
from activities.failures import card, patiently
from activities.nvml.outputs import store_reading
from activities.ssh.connection import Connection
from activities.steps.attempt import NVML_FACTS, Attempt
from activities.steps.ends import rebooted_well, step_end
from activities.steps.log import StepLog
from activities.steps.outputs import OutputError, parse_outputs
from activities.supervisor.client import Supervisor
from activities.supervisor.errors import SupervisorError
from activities.supervisor.spec import StepOutcome, StepState
from database.steps import STDERR, StepEnd, append_log, end_step, log_tail
from database.tables import Run, StepRun
from database.unit_of_work import Database
from domain.failures import STDERR_LIMIT, FailureClass
from domain.states import RunState


class Recorder:
    """Stores ends; the first record of a step stands."""

    def __init__(self, database: Database, access: Access) -> None:
        self._database = database
        self._access = access

    async def store_end(self, attempt: Attempt, outcome: StepOutcome, log: StepLog) -> StepEnd:
        """Waits for a database that is away. Raises StaleWriterError when the record is another's now."""
        outputs, wrong = await self._outputs(attempt, outcome)
        spoilt = wrong or await self._check_after_boot(attempt, outcome)
        pieces = log.take()

        async def write() -> StepEnd:
            async with self._database.begin() as session:
                for stream, start, data in pieces:
                    await append_log(session, attempt.record, stream, start, data)
                end = await self._end(session, attempt, outcome)
                if end.card is None and spoilt is not None:
                    end = _spoilt(attempt, end, spoilt)
                end = replace(end, outputs=outputs)
                if attempt.step.uses == NVML_FACTS and outputs is not None:
                    await store_reading(session, attempt.held.machine.id, outputs)
                await end_step(session, attempt.record, end)
            return end

        return await patiently(write)

    async def store(self, attempt: Attempt, end: StepEnd, log: StepLog) -> None:
        """An end that is known otherwise, with the rest of the output; raises as `store_end`."""
        pieces = log.take()

        async def write() -> None:
            async with self._database.begin() as session:
                for stream, start, data in pieces:
                    await append_log(session, attempt.record, stream, start, data)
                await end_step(session, attempt.record, end)

        await patiently(write)

    async def _end(self, session: AsyncSession, attempt: Attempt, outcome: StepOutcome) -> StepEnd:
        tail = await self._tail(session, attempt.record, outcome)
        canceled_by = None
        if outcome.state is StepState.CANCELED:
            # Asked for since this attempt was begun.
            canceled_by = await session.scalar(select(Run.canceled_by).where(Run.id == attempt.record.run_id))
        return step_end(
            outcome,
            attempt.step,
            attempt=attempt.record.attempt,
            machine=attempt.held.label,
            stderr_tail=tail.decode(errors="replace").replace("\0", ""),
            canceled_by=canceled_by,
        )

    async def _tail(self, session: AsyncSession, record: StepRun, outcome: StepOutcome) -> bytes:
        """The end of standard error, where a card will want it."""
        well = outcome.exit_status == 0 and outcome.outcome != "verify-failed"
        if well or not outcome.stderr_size:
            return b""
        return await log_tail(session, record, STDERR, STDERR_LIMIT)

    async def _outputs(
        self, attempt: Attempt, outcome: StepOutcome
    ) -> tuple[dict[str, Any] | None, tuple[FailureClass, str] | None]:
        if not outcome.output_size:
            return None, None
        try:
            key = attempt.spec.key
            data = await self._access.run(
                attempt.held.target, lambda connection, _: Supervisor(connection).output(key)
            )
            return parse_outputs(data), None
        except (OutputError, SupervisorError) as error:
            return None, (FailureClass.VALIDATION, str(error))

    async def _check_after_boot(
        self, attempt: Attempt, outcome: StepOutcome
    ) -> tuple[FailureClass, str] | None:
        """The check of a step that reboots, asked in the new boot, under a key of its own."""
        check = attempt.spec.check
        if check is None or not attempt.step.reboots or not rebooted_well(outcome):
            return None
        spec = replace(attempt.spec, key=f"{attempt.spec.key}.boot", run=check, check=None, interpreter=None)
        said = bytearray()

        def ask(connection: Connection, stop: threading.Event) -> StepOutcome | None:
            return Supervisor(connection).run(
                spec,
                on_stdout=lambda _, data: said.extend(data[:STDERR_LIMIT]),
                on_stderr=lambda _, data: said.extend(data[:STDERR_LIMIT]),
                should_stop=stop.is_set,
            )

        checked = await self._access.run(attempt.held.target, ask)
        if checked is not None and checked.state is StepState.EXITED and checked.exit_status == 0:
            return None
        text = said[-STDERR_LIMIT:].decode(errors="replace").replace("\0", "").strip()
        return FailureClass.EXIT, "rebooted, but its check still fails" + (f": {text}" if text else "")


def _spoilt(attempt: Attempt, end: StepEnd, reason: tuple[FailureClass, str]) -> StepEnd:
    """A step that ended well by itself, but not by what it left."""
    said = card(*reason, machine=attempt.held.label)
    said = said.model_copy(
        update={"step": attempt.step.name, "attempt": attempt.record.attempt, "of_step": True}
    )
    return replace(end, state=RunState.FAILED, card=said)
