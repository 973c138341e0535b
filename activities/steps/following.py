"""Following one attempt of a step to its end, over as many connections and reboots as that takes."""

import asyncio
import threading
import time
from datetime import UTC, datetime
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.access import Access
from activities.failures import card, failure
from activities.nvml import prepare_nvml
from activities.ssh.connection import Connection
from activities.ssh.errors import ChannelError, ConnectError, SshError
from activities.steps.attempt import NVML_FACTS, Attempt
from activities.steps.log import StepLog
from activities.steps.slots import Turn
from activities.supervisor.client import Supervisor
from activities.supervisor.spec import StepOutcome, StepState
from activities.waiting import ago, tell
from database.steps import append_log
from database.tables import StepRun
from database.unit_of_work import Database
from domain.failures import FailureClass

# Output is stored at least this often, in seconds.
STORE_EVERY = 0.25
# How long an unreachable machine is waited for within one step, in seconds, since it last answered.
LOST_AFTER = 300.0
RECONNECT_AFTER = 1.0


class LetGoError(Exception):
    """The step goes on, and is followed again: by another worker, or a little later."""


class WorkerStoppingError(LetGoError):
    """This worker is shutting down."""


class TurnOverError(LetGoError):
    """Others wait for the place."""


def let_go(error: LetGoError) -> ApplicationError:
    """Temporal tries the activity again, here or elsewhere, and attaches to the step that goes on."""
    return ApplicationError(str(error), type="let-go", category=ApplicationErrorCategory.BENIGN)


class Follower:
    """One attempt's follower. What `log` still holds at the end is stored with the result.

    Without a turn it keeps its place on the worker for as long as it takes.
    """

    def __init__(
        self,
        database: Database,
        access: Access,
        attempt: Attempt,
        *,
        turn: Turn | None = None,
        lost_after: float = LOST_AFTER,
    ) -> None:
        self._database = database
        self._access = access
        self._attempt = attempt
        self._turn = turn
        self._lost_after = lost_after
        self._unreachable_since = _since_before()
        self._told = False
        self.log = StepLog(attempt.record.stdout_size, attempt.record.stderr_size)

    async def to_end(self) -> StepOutcome:
        """Raises LetGoError, StaleWriterError, SshError and SupervisorError, and failures with cards."""
        while True:
            try:
                outcome = await self.attach()
            except (ConnectError, ChannelError) as error:
                away = self._note_lost(error)
                await self._tell(f"the machine has not answered since {ago(away)}: {error}")
            else:
                if not awaits_boot(outcome, reboots=self._attempt.step.reboots is True):
                    await self._tell(None)
                    return outcome
                self._within_boot_deadline("the machine has not rebooted", FailureClass.TIMEOUT)
                await self._tell("waiting for the machine to reboot")
            await self._store()
            self.log = StepLog(self.log.stdout_end, self.log.stderr_end)
            self._heartbeat()
            # A machine that is away holds up nobody either.
            self._keep_place(activity.is_worker_shutdown())
            await asyncio.sleep(RECONNECT_AFTER)

    def _heartbeat(self) -> None:
        """Tells Temporal for how long the machine has been away: the next try counts on from there."""
        since = self._unreachable_since
        away = [] if since is None else [{"unreachableSeconds": round(time.monotonic() - since, 1)}]
        activity.heartbeat(*away)

    def _in_contact(self) -> None:
        """The supervisor said something. A shell that logs in and says nothing is no contact."""
        self._unreachable_since = None

    async def _tell(self, waiting: str | None) -> None:
        """Tells callers once what the step waits for, and once that it no longer does."""
        if self._told is (waiting is not None):
            return
        step = self._attempt.step.name
        await tell(self._database, self._attempt.record.run_id, waiting and f"step {step}: {waiting}")
        self._told = waiting is not None

    def _note_lost(self, error: SshError) -> float:
        """Returns for how many seconds the machine has been away."""
        now = time.monotonic()
        if self._unreachable_since is None:
            self._unreachable_since = now
        away = now - self._unreachable_since
        if self._attempt.step.reboots:
            self._within_boot_deadline(f"the machine has not come back ({error})", FailureClass.LOST_MACHINE)
        elif away > self._lost_after:
            message = f"unreachable for {away:.0f} s during the step: {error}"
            lost = card(FailureClass.LOST_MACHINE, message, machine=self._attempt.held.label)
            raise failure(lost, retried=False) from error
        return away

    def _within_boot_deadline(self, what: str, failure_class: FailureClass) -> None:
        """A step that reboots has its own timeout for all of it: the body, the boot, the way back."""
        limit = self._attempt.step.timeout_seconds
        if (datetime.now(UTC) - self._attempt.record.started_at).total_seconds() > limit:
            message = f"{what} within the step's timeout of {limit} s"
            late = card(failure_class, message, machine=self._attempt.held.label)
            raise failure(late, retried=False)

    async def attach(self) -> StepOutcome:
        """One connection's worth of following. Output goes from the thread through `log` to the database.

        Raises LetGoError, StaleWriterError, SshError and SupervisorError.
        """
        stop = threading.Event()
        log = self.log

        def follow(connection: Connection) -> StepOutcome | None:
            if self._attempt.step.uses == NVML_FACTS:
                prepare_nvml(connection)
            return Supervisor(connection).run(
                self._attempt.spec,
                stdout_offset=log.stdout_end,
                stderr_offset=log.stderr_end,
                on_stdout=log.feed_stdout,
                on_stderr=log.feed_stderr,
                should_stop=stop.is_set,
                on_contact=self._in_contact,
            )

        following = await self._access.start(self._attempt.held.target, follow)
        stopping = asyncio.ensure_future(activity.wait_for_worker_shutdown())
        either: set[asyncio.Future[Any]] = {following, stopping}
        try:
            while not following.done():
                await asyncio.wait(either, timeout=STORE_EVERY, return_when=asyncio.FIRST_COMPLETED)
                self._heartbeat()
                if not following.done():
                    await self._store()
                    if self._unreachable_since is None:
                        await self._tell(None)
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
        if self._turn is not None and self._turn.over:
            raise TurnOverError("the step goes on; others wait for this worker")

    async def _store(self) -> None:
        await store_log(self._database, self._attempt.record, self.log)


def _since_before() -> float | None:
    """When the machine went away, by this process's clock, as the try before has told in its heartbeats.

    Only time in which it was tried counts: a control plane that was down has not found it unreachable.
    """
    told = activity.info().heartbeat_details
    return time.monotonic() - float(told[0]["unreachableSeconds"]) if told else None


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
