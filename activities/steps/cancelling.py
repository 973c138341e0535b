"""Cancelling steps on their machine: ended for certain, or asked for until the machine can say so."""

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from temporalio import activity

from activities.failures import card, classified, failure, patiently
from activities.secrets import FileSecrets
from activities.signatures import MachineTask
from activities.ssh.errors import SshError
from activities.ssh.pool import ConnectionPool
from activities.steps.attempt import step_key
from activities.supervisor.client import Supervisor
from activities.supervisor.errors import SupervisorError, TokenRefused
from activities.supervisor.spec import CancelProof
from activities.targets import ClaimedMachine, claimed_machine
from activities.threads import Threads
from database.cancellation import note_unconfirmed
from database.run_locks import SupersededError
from database.steps import StepEnd, end_step, open_steps
from database.tables import Node, StepRun
from database.unit_of_work import Database
from domain.failures import FailureClass
from domain.states import RunState


class Canceller:
    """Ends steps, with proof that nothing of them is left."""

    def __init__(
        self, database: Database, pool: ConnectionPool, secrets: FileSecrets, threads: Threads
    ) -> None:
        self._database = database
        self._pool = pool
        self._secrets = secrets
        self._threads = threads

    def cancel_once(self, held: ClaimedMachine, key: str) -> CancelProof:
        """Blocking: TERM, grace, KILL, proof. Raises SshError and SupervisorError."""
        assert held.run.claim_token is not None, "a machine that is held has its token"
        with self._pool.connection(held.target) as connection:
            return Supervisor(connection).cancel(key, held.run.claim_token)

    async def confirm(self, task: MachineTask) -> None:
        """Ends what the run may have left running; raises a failure to be tried again until that is proven.

        A run whose node or machine has moved on leaves the proof to the run that has taken over: that one
        raises the machine's claim token, which ends everything of lower ones.
        """
        async with classified():
            held, left = await patiently(lambda: self._left(task))
            for record in left:
                if held is None:
                    await patiently(lambda record=record: self._leave(record))  # type: ignore[misc]
                else:
                    await self._end_one(held, record)

    async def _left(self, task: MachineTask) -> tuple[ClaimedMachine | None, list[StepRun]]:
        """The run's steps without an end, and the machine while it is still this run's to touch."""
        async with self._database.begin() as session:
            left = await open_steps(session, task.run_id)
            try:
                held = await claimed_machine(session, self._secrets, task)
            except SupersededError:
                return None, left
            return (held if await _still_wanted(session, held) else None), left

    async def _end_one(self, held: ClaimedMachine, record: StepRun) -> None:
        key = step_key(record.run_id, record.position, record.attempt)
        try:
            proof = await self._threads.run(lambda _: self.cancel_once(held, key))
            said = "something of it could not be ended"
        except TokenRefused:
            await patiently(lambda: self._leave(record))
            return
        except (SshError, SupervisorError) as error:
            proof, said = CancelProof(None, clean=False), str(error)
        if not proof.clean:
            await patiently(lambda: self._unconfirmed(record))
            message = (
                f"step {record.name} was cancelled, but the machine cannot confirm that it ended: {said}"
            )
            raise failure(card(FailureClass.CONNECT, message, machine=held.label), retried=True)
        await patiently(lambda: self.record(record, held.label))

    async def record(self, record: StepRun, machine: str) -> None:
        """Records that a step was cancelled and that nothing of it is left."""
        said = card(FailureClass.CANCELLED, "was cancelled; nothing of it is left", machine=machine)
        said = said.model_copy(update={"step": record.name, "attempt": record.attempt})
        async with self._database.begin() as session:
            await end_step(session, record.id, StepEnd(state=RunState.CANCELED, card=said))

    async def _unconfirmed(self, record: StepRun) -> None:
        async with self._database.begin() as session:
            await note_unconfirmed(session, record)

    async def _leave(self, record: StepRun) -> None:
        message = "was cancelled; the run that took over sees to it that nothing of it is left"
        said = card(FailureClass.SUPERSEDED, message)
        said = said.model_copy(update={"step": record.name, "attempt": record.attempt})
        async with self._database.begin() as session:
            await end_step(session, record.id, StepEnd(state=RunState.SUPERSEDED, card=said))
        activity.logger.info("step %s of run %s is left to its successor", record.name, record.run_id)


async def _still_wanted(session: AsyncSession, held: ClaimedMachine) -> bool:
    if held.run.node_id is None:
        return True
    generation = await session.scalar(select(Node.generation).where(Node.id == held.run.node_id))
    return generation == held.run.generation
