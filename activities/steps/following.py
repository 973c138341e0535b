"""Following one attempt of a step to its end, over as many connections and reboots as that takes."""

import asyncio
import threading
import time
from datetime import UTC, datetime
from typing import Any

from temporalio import activity

from activities.failures import card, failure
from activities.nvml import prepare_nvml
from activities.ssh.errors import ChannelError, ConnectError, SshError
from activities.ssh.pool import ConnectionPool
from activities.steps.attempt import NVML_FACTS, Attempt
from activities.steps.log import StepLog
from activities.steps.slots import Turn
from activities.supervisor.client import Supervisor
from activities.supervisor.spec import StepOutcome, StepState
from activities.threads import Threads
from database.steps import append_log
from database.tables import StepRun
from database.unit_of_work import Database
from domain.failures import FailureClass

# Output is stored at least this often, in seconds.
STORE_EVERY = 0.25
# How long an unreachable machine is waited for within one step, in seconds, since it last answered.
REACH_BUDGET = 300.0
RECONNECT_AFTER = 1.0
# A connection ends after 30 s without a word from the supervisor; one that lasted longer had heard it.
HEARD_AFTER = 60.0


class LetGoError(Exception):
    """The step goes on, and is followed again: by another worker, or a little later."""


class WorkerStoppingError(LetGoError):
    """This worker is shutting down."""


class TurnOverError(LetGoError):
    """Others wait for the place."""


class Follower:
    """One attempt's follower. What `log` still holds at the end is stored with the result."""

    def __init__(
        self, database: Database, pool: ConnectionPool, threads: Threads, attempt: Attempt, turn: Turn
    ) -> None:
        self._database = database
        self._pool = pool
        self._threads = threads
        self._attempt = attempt
        self._turn = turn
        self._unreachable_since: float | None = None
        self.log = StepLog(attempt.record.stdout_size, attempt.record.stderr_size)

    async def to_end(self) -> StepOutcome:
        """Raises LetGoError, StaleWriterError, SshError and SupervisorError, and failures with cards."""
        while True:
            begun, at = time.monotonic(), (self.log.stdout_end, self.log.stderr_end)
            try:
                outcome = await self._attach()
            except (ConnectError, ChannelError) as error:
                # Only a supervisor that was heard counts as contact: a shell that logs in and says nothing
                # would otherwise be followed for ever.
                heard = time.monotonic() - begun > HEARD_AFTER
                self._note_lost(error, heard=heard or at != (self.log.stdout_end, self.log.stderr_end))
            else:
                if not awaits_boot(outcome, reboots=self._attempt.step.reboots is True):
                    return outcome
                self._unreachable_since = None
                self._within_boot_deadline("the machine has not rebooted")
            await self._store()
            self.log = StepLog(self.log.stdout_end, self.log.stderr_end)
            activity.heartbeat()
            await asyncio.sleep(RECONNECT_AFTER)

    def _note_lost(self, error: SshError, *, heard: bool) -> None:
        if self._attempt.step.reboots:
            self._within_boot_deadline(f"the machine has not come back ({error})")
            return
        now = time.monotonic()
        if self._unreachable_since is None or heard:
            self._unreachable_since = now
        away = now - self._unreachable_since
        if away > REACH_BUDGET:
            message = f"unreachable for {away:.0f} s during the step: {error}"
            lost = card(FailureClass.LOST_MACHINE, message, machine=self._attempt.held.label)
            raise failure(lost, retried=False) from error

    def _within_boot_deadline(self, what: str) -> None:
        """A step that reboots has its own timeout for all of it: the body, the boot, the way back."""
        limit = self._attempt.step.timeout_seconds
        if (datetime.now(UTC) - self._attempt.record.started_at).total_seconds() > limit:
            message = f"{what} within the step's timeout of {limit} s"
            late = card(FailureClass.TIMEOUT, message, machine=self._attempt.held.label)
            raise failure(late, retried=False)

    async def _attach(self) -> StepOutcome:
        """One connection's worth of following. Output goes from the thread through `log` to the database."""
        stop = threading.Event()
        log = self.log

        def in_thread() -> StepOutcome | None:
            with self._pool.connection(self._attempt.held.target) as connection:
                if self._attempt.step.uses == NVML_FACTS:
                    prepare_nvml(connection)
                return Supervisor(connection).run(
                    self._attempt.spec,
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
                    await self._store()
                    self._keep_place(stopping.done())
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

    def _keep_place(self, stopping: bool) -> None:
        if stopping:
            raise WorkerStoppingError("the worker is stopping; the step goes on")
        if self._turn.over:
            raise TurnOverError("the step goes on; others wait for this worker")

    async def _store(self) -> None:
        await store_log(self._database, self._attempt.record, self.log)


async def store_log(database: Database, record: StepRun, log: StepLog) -> None:
    """Stores what is pending."""
    pieces = log.take()
    if pieces:
        async with database.begin() as session:
            for stream, start, data in pieces:
                await append_log(session, record, stream, start, data)


def awaits_boot(outcome: StepOutcome, *, reboots: bool) -> bool:
    """Whether a step that reboots its machine has done its part, and the new boot is still to come.

    A signal counts as done: going down, the machine ends the step's processes like all others.
    """
    if not reboots or outcome.rebooted or outcome.state is not StepState.EXITED:
        return False
    if outcome.outcome in ("no-change", "skipped"):
        return False
    return outcome.exit_status == 0 or outcome.signal is not None
