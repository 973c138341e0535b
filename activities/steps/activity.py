"""Running one attempt of one step: start or attach, store its output as it comes, record how it ended.

The step itself lives on the machine, under its supervisor. This activity may die at any point: the next try
attaches to the same step by its key and goes on from what is stored.
"""

import asyncio
from dataclasses import replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.failures import card, classified, failure
from activities.nvml.outputs import store_reading
from activities.secrets import FileSecrets
from activities.signatures import MachineTask, StepActivities, StepReport, StepTask
from activities.ssh.errors import SshError
from activities.ssh.pool import ConnectionPool
from activities.steps.attempt import NVML_FACTS, Attempt, begin_attempt
from activities.steps.cancelling import Canceller
from activities.steps.ends import rebooted_well, step_end
from activities.steps.following import Follower, LetGoError
from activities.steps.log import StepLog
from activities.steps.outputs import OutputError, parse_outputs
from activities.steps.slots import Slots
from activities.supervisor.client import Supervisor
from activities.supervisor.errors import SupervisorError
from activities.supervisor.spec import StepOutcome, StepState
from activities.targets import claimed_machine
from activities.threads import Threads
from database.steps import STDERR, StaleWriterError, StepEnd, append_log, end_step, log_tail
from database.tables import StepRun
from database.unit_of_work import Database
from domain.failures import STDERR_LIMIT, FailureCard, FailureClass
from domain.states import RunState

# How long the output of a cancelled step is waited for after the proof that it has ended, in seconds.
LAST_OUTPUT = 5.0


class Steps(StepActivities):
    """See `StepActivities` for the signatures."""

    def __init__(
        self, database: Database, pool: ConnectionPool, secrets: FileSecrets, threads: Threads, slots: Slots
    ) -> None:
        self._database = database
        self._pool = pool
        self._secrets = secrets
        self._threads = threads
        self._slots = slots
        self._canceller = Canceller(database, pool, secrets, threads)

    @activity.defn(name="confirm_cancel")
    async def confirm_cancel(self, task: MachineTask) -> None:
        await self._canceller.confirm(task)

    @activity.defn(name="run_step")
    async def run_step(self, task: StepTask) -> StepReport:
        async with classified(), self._database.begin() as session:
            held = await claimed_machine(session, self._secrets, task)
            attempt = await begin_attempt(session, held, task)
        if attempt.record.ended_at is not None:
            return _stored_result(attempt.record)
        try:
            async with classified(held.label):
                return await self._run(attempt)
        except ApplicationError as error:
            if not error.non_retryable:
                raise
            said = await self._note_failure(attempt, error)
            raise failure(said, retried=False) from error

    async def _run(self, attempt: Attempt) -> StepReport:
        with self._slots.taken() as turn:
            follower = Follower(self._database, self._pool, self._threads, attempt, turn)
            following = asyncio.ensure_future(follower.to_end())
            try:
                outcome = await asyncio.shield(following)
            except LetGoError as error:
                raise _let_go(error) from error
            except StaleWriterError as error:
                raise ApplicationError(str(error), type="stale-writer") from error
            except asyncio.CancelledError:
                await self._cancelled(attempt, follower, following)
                raise
            if outcome.state is StepState.LOST:
                # Whatever its dead supervisor left must be gone before anything else runs here.
                proof = await self._threads.run(
                    lambda _: self._canceller.cancel_once(attempt.held, attempt.spec.key)
                )
                outcome = replace(outcome, clean=proof.clean)
            return await self._record(attempt, outcome, follower.log)

    async def _cancelled(
        self, attempt: Attempt, follower: Follower, following: asyncio.Future[StepOutcome]
    ) -> None:
        """Ends the step on its machine, when it is the workflow that asked; else it is only let go of.

        What the machine cannot confirm now stays open, and is asked for by `confirm_cancel`.
        """
        details = activity.cancellation_details()
        proven = False
        if details is not None and details.cancel_requested:
            try:
                proof = await self._threads.run(
                    lambda _: self._canceller.cancel_once(attempt.held, attempt.spec.key)
                )
                proven = proof.clean
            except (SshError, SupervisorError) as error:
                activity.logger.warning("cancel of %s: %s", attempt.spec.key, error)
            if proven:
                # Still attached, it ends by itself with the step's last output.
                await asyncio.wait({following}, timeout=LAST_OUTPUT)
        following.cancel()
        await asyncio.wait({following})
        if not proven:
            return
        if not following.cancelled() and following.exception() is None:
            await self._store_end(attempt, following.result(), follower.log)
        else:
            await self._canceller.record(attempt.record, attempt.held.label)

    async def _record(self, attempt: Attempt, outcome: StepOutcome, log: StepLog) -> StepReport:
        end = await self._store_end(attempt, outcome, log)
        if end.card is not None:
            raise failure(end.card, retried=False)
        assert end.outcome is not None, "a step that succeeded has an outcome"
        return StepReport(outcome=end.outcome)

    async def _store_end(self, attempt: Attempt, outcome: StepOutcome, log: StepLog) -> StepEnd:
        outputs, wrong = await self._outputs(attempt, outcome)
        failed_check = await self._check_after_boot(attempt, outcome)
        async with self._database.begin() as session:
            for stream, start, data in log.take():
                await append_log(session, attempt.record, stream, start, data)
            tail = await self._tail(session, attempt.record, outcome)
            end = step_end(
                outcome,
                attempt.step,
                attempt=attempt.record.attempt,
                machine=attempt.held.label,
                stderr_tail=tail.decode(errors="replace").replace("\0", ""),
            )
            spoilt = wrong or failed_check
            if end.card is None and spoilt is not None:
                end = self._spoilt(attempt, end, spoilt)
            end = replace(end, outputs=outputs)
            if attempt.step.uses == NVML_FACTS and outputs is not None:
                await store_reading(session, attempt.held.machine.id, outputs)
            await end_step(session, attempt.record.id, end)
        return end

    async def _tail(self, session: AsyncSession, record: StepRun, outcome: StepOutcome) -> bytes:
        """The end of standard error, where a card will want it."""
        well = outcome.exit_status == 0 and outcome.outcome != "verify-failed"
        if well or not outcome.stderr_size:
            return b""
        return await log_tail(session, record, STDERR, STDERR_LIMIT)

    def _spoilt(self, attempt: Attempt, end: StepEnd, reason: tuple[FailureClass, str]) -> StepEnd:
        """A step that ended well by itself, but not by what it left."""
        said = card(*reason, machine=attempt.held.label)
        said = said.model_copy(update={"step": attempt.step.name, "attempt": attempt.record.attempt})
        return replace(end, state=RunState.FAILED, card=said)

    async def _outputs(
        self, attempt: Attempt, outcome: StepOutcome
    ) -> tuple[dict[str, Any] | None, tuple[FailureClass, str] | None]:
        if not outcome.output_size:
            return None, None
        try:
            data = await self._threads.run(lambda _: self._read_output(attempt))
            return parse_outputs(data), None
        except (OutputError, SupervisorError) as error:
            return None, (FailureClass.VALIDATION, str(error))

    def _read_output(self, attempt: Attempt) -> bytes:
        with self._pool.connection(attempt.held.target) as connection:
            return Supervisor(connection).output(attempt.spec.key)

    async def _check_after_boot(
        self, attempt: Attempt, outcome: StepOutcome
    ) -> tuple[FailureClass, str] | None:
        """The check of a step that reboots, asked in the new boot, under a key of its own."""
        check = attempt.spec.check
        if check is None or not attempt.step.reboots or not rebooted_well(outcome):
            return None
        spec = replace(attempt.spec, key=f"{attempt.spec.key}.boot", run=check, check=None, interpreter=None)
        said = bytearray()

        def in_thread() -> StepOutcome | None:
            with self._pool.connection(attempt.held.target) as connection:
                return Supervisor(connection).run(
                    spec,
                    on_stdout=lambda _, data: said.extend(data[:STDERR_LIMIT]),
                    on_stderr=lambda _, data: said.extend(data[:STDERR_LIMIT]),
                )

        checked = await self._threads.run(lambda _: in_thread())
        if checked is not None and checked.state is StepState.EXITED and checked.exit_status == 0:
            return None
        text = said[-STDERR_LIMIT:].decode(errors="replace").replace("\0", "").strip()
        return FailureClass.EXIT, "rebooted, but its check still fails" + (f": {text}" if text else "")

    async def _note_failure(self, attempt: Attempt, error: ApplicationError) -> FailureCard:
        """Ends the step's record when it failed without an outcome of its own; the first record stands.

        Returns the error's card with the step's name in it.
        """
        said = FailureCard.model_validate(error.details[0])
        said = said.model_copy(update={"step": attempt.step.name, "attempt": attempt.record.attempt})
        superseded = said.failure_class is FailureClass.SUPERSEDED
        state = RunState.SUPERSEDED if superseded else RunState.FAILED
        async with self._database.begin() as session:
            await end_step(session, attempt.record.id, StepEnd(state=state, card=said))
        return said


def _let_go(error: LetGoError) -> ApplicationError:
    """Temporal tries the activity again, here or elsewhere, and attaches to the step that goes on."""
    return ApplicationError(str(error), type="let-go", category=ApplicationErrorCategory.BENIGN)


def _stored_result(record: StepRun) -> StepReport:
    """The answer for an attempt that had ended before: this try only repeats what is recorded."""
    if record.card is not None:
        raise failure(FailureCard.model_validate(record.card), retried=False)
    return StepReport(outcome=record.outcome or "changed")
