"""Cancelling steps on their machine: ended for certain, or asked for until the machine can say so."""

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from temporalio import activity

from activities.access import Access
from activities.failures import card, classified, failure, patiently
from activities.secrets import FileSecrets
from activities.signatures import MachineTask
from activities.ssh.errors import SshError
from activities.steps.attempt import Attempt, attempt_of, step_key
from activities.steps.ends import cancelled_text
from activities.steps.following import Follower, LetGoError, let_go
from activities.steps.recording import Recorder
from activities.supervisor.client import Supervisor
from activities.supervisor.errors import SupervisorError, TokenRefused
from activities.supervisor.spec import CancelProof, StepState
from activities.targets import ClaimedMachine, claimed_machine
from database.cancellation import note_unconfirmed
from database.run_locks import SupersededError
from database.steps import (
    StaleWriterError,
    StepEnd,
    end_step,
    may_have_left_something,
    take_over_open_steps,
)
from database.tables import Node, StepRun
from database.unit_of_work import Database
from domain.failures import FailureCard, FailureClass
from domain.states import RunState


class Canceller:
    """Ends steps, with proof that nothing of them is left."""

    def __init__(
        self,
        database: Database,
        access: Access,
        secrets: FileSecrets,
        recorder: Recorder,
    ) -> None:
        self._database = database
        self._access = access
        self._secrets = secrets
        self._recorder = recorder

    async def cancel(self, held: ClaimedMachine, key: str) -> CancelProof:
        """TERM, grace, KILL, proof. Raises SshError and SupervisorError."""
        return await self._access.run(
            held.target, lambda connection, _: Supervisor(connection).cancel(key, _token(held))
        )

    async def settle(self, held: ClaimedMachine, record: StepRun, proof: CancelProof) -> None:
        """Records the end of a step after its cancel: as cancelled, or as it ended before that came.

        Raises StaleWriterError when another follows it, LetGoError, SshError and SupervisorError.
        """
        attempt = await self._attempt(held, record)
        follower = Follower(self._database, self._access, attempt)
        # It is over, so this only brings the output that nobody has fetched yet.
        outcome = await follower.attach()
        if proof.state in (StepState.EXITED, StepState.TIMED_OUT) and not attempt.step.reboots:
            await self._recorder.store_end(attempt, outcome, follower.log)
            return
        text = cancelled_text(held.run.canceled_by)
        said = _said(record, card(FailureClass.CANCELLED, text, machine=held.label))
        await self._recorder.store(attempt, StepEnd(state=RunState.CANCELED, card=said), follower.log)

    async def confirm(self, task: MachineTask) -> None:
        """Ends what the run may have left running; raises a failure to be tried again until that is proven.

        A run whose node or machine has moved on leaves the proof to the run that has taken over: that one
        raises the machine's claim token, which ends everything of lower ones.
        """
        async with classified():
            held, steps, doubtful = await patiently(lambda: self._left(task))
            if held is None:
                for record in steps:
                    await self._leave(record)
                return
            try:
                for record in steps:
                    await self._end_one(held, record)
                if steps or doubtful:
                    await self._quit(held, task)
            except LetGoError as error:
                raise let_go(error) from error

    async def _left(self, task: MachineTask) -> tuple[ClaimedMachine | None, list[StepRun], bool]:
        """The machine while it is still this run's to touch, its steps without an end, and whether others
        ended without proof."""
        async with self._database.begin() as session:
            steps = await take_over_open_steps(session, task.run_id)
            doubtful = await may_have_left_something(session, task.run_id)
            try:
                held = await claimed_machine(session, self._secrets, task)
            except SupersededError:
                return None, steps, doubtful
            return (held if await _still_wanted(session, held) else None), steps, doubtful

    async def _end_one(self, held: ClaimedMachine, record: StepRun) -> None:
        key = step_key(record.run_id, record.position, record.attempt)
        try:
            proof = await self.cancel(held, key)
            if proof.clean:
                await self.settle(held, record, proof)
                return
            failed = FailureClass.HEALTH
            said = "the machine answers, but something of it may be left"
        except TokenRefused:
            await self._leave(record)
            return
        except StaleWriterError:
            # An end was recorded meanwhile.
            return
        except (SshError, SupervisorError) as error:
            failed = FailureClass(error.failure_class)
            said = str(error)
        message = f"was cancelled, but the machine cannot confirm that it has ended: {said}"
        unconfirmed = _said(record, card(failed, message, machine=held.label))
        await patiently(lambda: self._unconfirmed(held, unconfirmed, record))
        raise failure(unconfirmed, retried=True)

    async def _quit(self, held: ClaimedMachine, task: MachineTask) -> None:
        """The same for whatever else of the run may be left: attempts whose end nobody has seen."""
        run = str(task.run_id)
        try:
            await self._access.run(
                held.target, lambda connection, _: Supervisor(connection).quit(run, _token(held))
            )
        except TokenRefused:
            activity.logger.info("what run %s may have left is for its successor to end", task.run_id)
        except (SshError, SupervisorError) as error:
            message = f"{held.run.action} of {held.run.name} was cancelled, but the machine cannot confirm "
            message += f"that none of its steps is left: {error}"
            unconfirmed = card(FailureClass.CONNECT, message, machine=held.label)
            await patiently(lambda: self._unconfirmed(held, unconfirmed))
            raise failure(unconfirmed, retried=True) from error

    async def _attempt(self, held: ClaimedMachine, record: StepRun) -> Attempt:
        """With the sizes that are stored by now."""

        async def read() -> Attempt:
            async with self._database.begin() as session:
                fresh = await session.get_one(StepRun, record.id)
                if fresh.follower != record.follower:
                    raise StaleWriterError(record)
                return await attempt_of(session, held, fresh)

        return await patiently(read)

    async def _end(self, record: StepRun, end: StepEnd) -> None:
        async def write() -> None:
            async with self._database.begin() as session:
                await end_step(session, record, end)

        await patiently(write)

    async def _unconfirmed(
        self, held: ClaimedMachine, said: FailureCard, record: StepRun | None = None
    ) -> None:
        async with self._database.begin() as session:
            await note_unconfirmed(session, held.run.id, said, step=record)

    async def _leave(self, record: StepRun) -> None:
        message = "was cancelled; the run that took over sees to it that nothing of it is left"
        said = _said(record, card(FailureClass.SUPERSEDED, message))
        try:
            await self._end(record, StepEnd(state=RunState.SUPERSEDED, card=said))
        except StaleWriterError:
            return
        activity.logger.info("step %s of run %s is left to its successor", record.name, record.run_id)


def _token(held: ClaimedMachine) -> int:
    assert held.run.claim_token is not None, "a machine that is held has its token"
    return held.run.claim_token


def _said(record: StepRun, said: FailureCard) -> FailureCard:
    return said.model_copy(update={"step": record.name, "attempt": record.attempt})


async def _still_wanted(session: AsyncSession, held: ClaimedMachine) -> bool:
    if held.run.node_id is None:
        return True
    generation = await session.scalar(select(Node.generation).where(Node.id == held.run.node_id))
    return generation == held.run.generation
