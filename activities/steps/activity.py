"""Running one attempt of one step: start or attach, store its output as it comes, record how it ended.

The step itself lives on the machine, under its supervisor. This activity may die at any point: the next try
attaches to the same step by its key and goes on from what is stored.
"""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.access import Access
from activities.failures import card, classified, failure
from activities.secrets import FileSecrets
from activities.signatures import MachineTask, StepActivities, StepReport, StepTask
from activities.ssh.errors import SshError
from activities.steps.attempt import Attempt, begin_attempt
from activities.steps.cancelling import Canceller
from activities.steps.following import Follower, LetGoError, let_go
from activities.steps.log import StepLog
from activities.steps.recording import Recorder
from activities.steps.slots import Slots
from activities.supervisor.errors import SupervisorError, Unproven
from activities.supervisor.spec import StepOutcome, StepState
from activities.targets import claimed_machine
from activities.waiting import ago, tell
from database.steps import StaleWriterError, StepEnd, end_step
from database.tables import StepRun
from database.unit_of_work import Database
from domain.failures import FailureCard, FailureClass
from domain.states import RunState

# For how long a start is tried beside something that its machine cannot end, in seconds.
UNPROVEN_BUDGET = 60.0
# How long the output of a cancelled step is waited for after the proof that it has ended, in seconds.
LAST_OUTPUT = 5.0


class Steps(StepActivities):
    """See `StepActivities` for the signatures."""

    def __init__(
        self,
        database: Database,
        access: Access,
        secrets: FileSecrets,
        slots: Slots,
        *,
        lost_after: float,
    ) -> None:
        self._lost_after = lost_after
        self._database = database
        self._access = access
        self._secrets = secrets
        self._slots = slots
        self._recorder = Recorder(database, access)
        self._canceller = Canceller(database, access, secrets, self._recorder)

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
        try:
            with self._slots.taken() as turn:
                follower = Follower(
                    self._database,
                    self._access,
                    attempt,
                    turn=turn,
                    lost_after=self._lost_after,
                )
                return await self._record(attempt, await self._outcome(attempt, follower), follower.log)
        except LetGoError as error:
            raise let_go(error) from error
        except StaleWriterError as error:
            # Tried again: then what the other one has recorded is the answer, or this one takes over again.
            raise ApplicationError(
                str(error), type="stale-writer", category=ApplicationErrorCategory.BENIGN
            ) from error
        except SupervisorError as error:
            raise _refused(attempt, error) from error

    async def _outcome(self, attempt: Attempt, follower: Follower) -> StepOutcome:
        following = asyncio.ensure_future(follower.to_end())
        try:
            outcome = await asyncio.shield(following)
        except asyncio.CancelledError:
            await self._cancelled(attempt, follower, following)
            raise
        if outcome.state is StepState.LOST:
            # Whatever its dead supervisor left must be gone before anything else runs here.
            proof = await self._canceller.cancel(attempt.held, attempt.spec.key)
            outcome = replace(outcome, clean=proof.clean)
        return outcome

    async def _cancelled(
        self, attempt: Attempt, follower: Follower, following: asyncio.Future[StepOutcome]
    ) -> None:
        """Ends the step on its machine, when it is the workflow that asked; else it is only let go of.

        What the machine cannot confirm now stays open, and is asked for by `confirm_cancel`.
        """
        details = activity.cancellation_details()
        proof = None
        if details is not None and details.cancel_requested:
            try:
                proof = await self._canceller.cancel(attempt.held, attempt.spec.key)
            except (SshError, SupervisorError) as error:
                activity.logger.warning("cancel of %s: %s", attempt.spec.key, error)
        if proof is not None and proof.clean:
            # Still attached, it ends by itself with the step's last output.
            await asyncio.wait({following}, timeout=LAST_OUTPUT)
        following.cancel()
        await asyncio.wait({following})
        if proof is None or not proof.clean:
            return
        try:
            if not following.cancelled() and following.exception() is None:
                await self._recorder.store_end(attempt, following.result(), follower.log)
            else:
                await self._canceller.settle(attempt.held, attempt.record, proof)
        except (SshError, SupervisorError, StaleWriterError, LetGoError) as error:
            activity.logger.warning("end of %s: %s", attempt.spec.key, error)

    async def _record(self, attempt: Attempt, outcome: StepOutcome, log: StepLog) -> StepReport:
        end = await self._recorder.store_end(attempt, outcome, log)
        if end.card is not None:
            await self._tell_retry(attempt, end.card)
            raise failure(end.card, retried=False)
        assert end.outcome is not None, "a step that succeeded has an outcome"
        return StepReport(outcome=end.outcome)

    async def _tell_retry(self, attempt: Attempt, said: FailureCard) -> None:
        """A failure that the step's profile has tried again is seen before that happens."""
        if not said.is_of_step or not attempt.retry_in:
            return
        again = ago(-attempt.retry_in)
        await tell(self._database, attempt.record.run_id, f"tried again at {again} after: {said.text()}")

    async def _note_failure(self, attempt: Attempt, error: ApplicationError) -> FailureCard:
        """Ends the step's record when it failed without an outcome of its own; the first record stands.

        Returns the error's card with the step's name in it.
        """
        said = FailureCard.model_validate(error.details[0])
        said = said.model_copy(update={"step": attempt.step.name, "attempt": attempt.record.attempt})
        superseded = said.failure_class is FailureClass.SUPERSEDED
        state = RunState.SUPERSEDED if superseded else RunState.FAILED
        try:
            async with self._database.begin() as session:
                await end_step(session, attempt.record, StepEnd(state=state, card=said))
        except StaleWriterError as stale:
            raise ApplicationError(str(stale), type="stale-writer") from error
        return said


def _refused(attempt: Attempt, error: SupervisorError) -> ApplicationError:
    """What the machine's supervisor will not do now it will not do later, but for ending what went before."""
    failure_class = FailureClass(error.failure_class)
    waits = isinstance(error, Unproven)
    if waits and (datetime.now(UTC) - attempt.record.started_at).total_seconds() > UNPROVEN_BUDGET:
        waits, failure_class = False, FailureClass.HEALTH
    return failure(card(failure_class, str(error), machine=attempt.held.label), retried=waits)


def _stored_result(record: StepRun) -> StepReport:
    """The answer for an attempt that had ended before: this try only repeats what is recorded."""
    if record.card is not None:
        raise failure(FailureCard.model_validate(record.card), retried=False)
    return StepReport(outcome=record.outcome or "changed")
