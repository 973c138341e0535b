"""Running one attempt of one step: start or attach, store its output as it comes, record how it ended.

The step itself lives on the machine, under its supervisor. This activity may die at any point: the next try
attaches to the same step by its key and goes on from what is stored.
"""

import asyncio
import threading
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from sqlalchemy import select
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.failures import card, classified, failure
from activities.secrets import FileSecrets
from activities.signatures import StepActivities, StepReport, StepTask
from activities.ssh.errors import ChannelError, ConnectError, SshError
from activities.ssh.pool import ConnectionPool
from activities.step_ends import step_end
from activities.step_log import StepLog
from activities.supervisor.client import Supervisor
from activities.supervisor.errors import SupervisorError
from activities.supervisor.spec import StepOutcome, StepSpec, StepState
from activities.targets import ClaimedMachine, claimed_machine
from activities.threads import Threads
from database.steps import (
    STDERR,
    StaleWriterError,
    StepEnd,
    append_log,
    begin_step,
    end_step,
    log_tail,
    plan_of_run,
)
from database.tables import Cluster, Node, StepRun
from database.unit_of_work import Database
from domain.failures import STDERR_LIMIT, FailureCard, FailureClass
from domain.states import RunState
from profiles.plan import Plan, PlanStep

# Output is stored at least this often, in seconds.
STORE_EVERY = 0.25
# How long an unreachable machine is waited for within one step, in seconds, since it last answered.
REACH_BUDGET = 300.0
RECONNECT_AFTER = 1.0
# A connection ends after 30 s without a word from the supervisor; one that lasted longer had heard it.
HEARD_AFTER = 60.0
CANCEL_TRIES = 3


class WorkerStoppingError(Exception):
    """This worker is shutting down; the step goes on, and another worker attaches to it."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt of a step, with all that is needed to run it."""

    held: ClaimedMachine
    step: PlanStep
    record: StepRun
    spec: StepSpec


class Steps(StepActivities):
    """See `StepActivities` for the signature."""

    def __init__(
        self, database: Database, pool: ConnectionPool, secrets: FileSecrets, threads: Threads
    ) -> None:
        self._database = database
        self._pool = pool
        self._secrets = secrets
        self._threads = threads

    @activity.defn(name="run_step")
    async def run_step(self, task: StepTask) -> StepReport:
        async with classified():
            attempt = await self._begin(task)
        if attempt.record.ended_at is not None:
            return _stored_result(attempt.record)
        try:
            async with classified(attempt.held.label):
                return await self._run(attempt)
        except ApplicationError as error:
            if error.non_retryable:
                await self._note_failure(attempt, error)
            raise

    async def _run(self, attempt: _Attempt) -> StepReport:
        try:
            outcome, log = await self._follow(attempt)
            if outcome.state is StepState.LOST:
                # Whatever its dead supervisor left must be gone before anything else runs here.
                clean = await self._threads.start(lambda: self._cancel_once(attempt))
                outcome = replace(outcome, clean=clean)
            return await self._record(attempt, outcome, log)
        except WorkerStoppingError as error:
            raise ApplicationError(str(error), type="worker-stopping") from error
        except StaleWriterError as error:
            raise ApplicationError(str(error), type="stale-writer") from error
        except asyncio.CancelledError:
            await self._cancel_on_machine(attempt)
            raise

    async def _begin(self, task: StepTask) -> _Attempt:
        async with self._database.begin() as session:
            held = await claimed_machine(session, self._secrets, task)
            plan = _plan(await plan_of_run(session, task.run_id))
            step = plan.steps[task.position]
            record = await begin_step(
                session,
                run_id=task.run_id,
                position=task.position,
                attempt=task.attempt,
                name=step.name,
                uses=step.uses,
                machine=task.machine_id,
            )
            cluster = await session.scalar(
                select(Cluster.name)
                .join(Node, Node.cluster_id == Cluster.id)
                .where(Node.id == held.run.node_id)
            )
        spec = StepSpec(
            key=f"{task.run_id}.{task.position}.{task.attempt}",
            token=task.token,
            run=step.run.encode(),
            check=None if step.check is None else step.check.encode(),
            interpreter=step.interpreter,
            timeout_s=step.timeout_seconds,
            environment={
                "BRINGUP_OPERATION": str(held.run.operation_id),
                "BRINGUP_CLUSTER": cluster or "",
                "BRINGUP_NODE": held.run.name,
                "BRINGUP_MACHINE": held.machine.id,
                "BRINGUP_STEP": step.name,
                "BRINGUP_ATTEMPT": str(task.attempt),
            },
        )
        return _Attempt(held=held, step=step, record=record, spec=spec)

    async def _follow(self, attempt: _Attempt) -> tuple[StepOutcome, StepLog]:
        """Follows the step to its end over as many connections as that takes.

        What the returned log still holds is stored with the result, in one transaction.
        """
        log = StepLog(attempt.record.stdout_size, attempt.record.stderr_size)
        unreachable_since: float | None = None
        while True:
            begun, at = time.monotonic(), (log.stdout_end, log.stderr_end)
            try:
                return await self._attach(attempt, log), log
            except (ConnectError, ChannelError) as error:
                now = time.monotonic()
                # Only a supervisor that was heard counts as contact: a shell that logs in and says nothing
                # would otherwise be followed for ever.
                heard = now - begun > HEARD_AFTER or at != (log.stdout_end, log.stderr_end)
                if unreachable_since is None or heard:
                    unreachable_since = now
                if now - unreachable_since > REACH_BUDGET:
                    message = f"unreachable for {now - unreachable_since:.0f} s during the step: {error}"
                    lost = card(FailureClass.LOST_MACHINE, message, machine=attempt.held.label)
                    raise failure(lost, retried=False) from error
            await self._store(attempt.record, log)
            log = StepLog(log.stdout_end, log.stderr_end)
            activity.heartbeat()
            await asyncio.sleep(RECONNECT_AFTER)

    async def _attach(self, attempt: _Attempt, log: StepLog) -> StepOutcome:
        """One connection's worth of following. Output goes from the thread through `log` to the database."""
        stop = threading.Event()

        def in_thread() -> StepOutcome | None:
            with self._pool.connection(attempt.held.target) as connection:
                return Supervisor(connection).run(
                    attempt.spec,
                    stdout_offset=log.stdout_end,
                    stderr_offset=log.stderr_end,
                    on_stdout=log.feed_stdout,
                    on_stderr=log.feed_stderr,
                    should_stop=stop.is_set,
                )

        following = self._threads.start(in_thread)
        stopping = asyncio.ensure_future(activity.wait_for_worker_shutdown())
        either: set[asyncio.Future[Any]] = {following, stopping}
        try:
            while not following.done():
                await asyncio.wait(either, timeout=STORE_EVERY, return_when=asyncio.FIRST_COMPLETED)
                activity.heartbeat()
                if not following.done():
                    await self._store(attempt.record, log)
                if stopping.done() and not following.done():
                    raise WorkerStoppingError("the worker is stopping; the step goes on")
        finally:
            stopping.cancel()
            stop.set()
            log.release()
            # The thread must have let go before anything else touches this step.
            await asyncio.wait({following})
        outcome = following.result()
        if outcome is None:
            raise WorkerStoppingError("the step was let go of")
        return outcome

    async def _store(self, record: StepRun, log: StepLog) -> None:
        pieces = log.take()
        if pieces:
            async with self._database.begin() as session:
                for stream, start, data in pieces:
                    await append_log(session, record, stream, start, data)

    async def _record(self, attempt: _Attempt, outcome: StepOutcome, log: StepLog) -> StepReport:
        async with self._database.begin() as session:
            for stream, start, data in log.take():
                await append_log(session, attempt.record, stream, start, data)
            tail = await log_tail(session, attempt.record, STDERR, STDERR_LIMIT)
            end = step_end(
                outcome,
                attempt.step,
                attempt=attempt.record.attempt,
                machine=attempt.held.label,
                stderr_tail=tail.decode(errors="replace").replace("\0", ""),
            )
            await end_step(session, attempt.record.id, end)
        if end.card is not None:
            raise failure(end.card, retried=False)
        return StepReport(outcome=end.outcome or "ran")

    async def _note_failure(self, attempt: _Attempt, error: ApplicationError) -> None:
        """Ends the step's record when it failed without an outcome of its own; the first record stands."""
        said = FailureCard.model_validate(error.details[0])
        superseded = said.failure_class is FailureClass.SUPERSEDED
        state = RunState.SUPERSEDED if superseded else RunState.FAILED
        async with self._database.begin() as session:
            await end_step(session, attempt.record.id, StepEnd(state=state, card=said))

    async def _cancel_on_machine(self, attempt: _Attempt) -> None:
        """Ends the step on its machine, when it is the workflow that asked; else it is only let go of."""
        details = activity.cancellation_details()
        if details is None or not details.cancel_requested:
            return
        clean = False
        for _ in range(CANCEL_TRIES):
            try:
                clean = await self._threads.start(lambda: self._cancel_once(attempt))
                break
            except (SshError, SupervisorError) as error:
                activity.logger.warning("cancel of %s: %s", attempt.spec.key, error)
        state = RunState.CANCELED if clean else RunState.CANCEL_UNCONFIRMED
        message = "was cancelled" if clean else "was cancelled, but the machine could not confirm it"
        said = card(FailureClass.CANCELLED, message, machine=attempt.held.label)
        said = said.model_copy(update={"step": attempt.step.name, "attempt": attempt.record.attempt})
        async with self._database.begin() as session:
            await end_step(session, attempt.record.id, StepEnd(state=state, card=said))

    def _cancel_once(self, attempt: _Attempt) -> bool:
        with self._pool.connection(attempt.held.target) as connection:
            return Supervisor(connection).cancel(attempt.spec.key, attempt.spec.token).clean


@lru_cache(maxsize=256)
def _plan(text: str) -> Plan:
    return Plan.from_canonical(text)


def _stored_result(record: StepRun) -> StepReport:
    """The answer for an attempt that had ended before: this try only repeats what is recorded."""
    if record.card is not None:
        raise failure(FailureCard.model_validate(record.card), retried=False)
    return StepReport(outcome=record.outcome or "ran")
