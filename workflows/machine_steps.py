"""What node workflows share: reach the machine, plan, and run the plan's steps one after another."""

from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError
from temporalio.workflow import ActivityConfig

with workflow.unsafe.imports_passed_through():
    from activities.signatures import (
        Claimed,
        MachineActivities,
        MachineTask,
        PlanOutline,
        RecordActivities,
        RunHeader,
        RunRef,
        StepActivities,
        StepHeader,
        StepTask,
    )
    from domain.failures import FailureCard, FailureClass
    from domain.holds import Verdict
    from profiles.kinds.base import OnFailure
    from workflows import options
    from workflows.calls import call, cancelled_by, refuse_cancelled
    from workflows.failures import current_card
    from workflows.holding import Holding

# A step that was lost with its machine is run again only where its check makes that safe, and not for ever.
LOST_TRIES = 3
# Not for a person to decide about: somebody already has.
_DECIDED = frozenset({FailureClass.CANCELLED, FailureClass.SUPERSEDED})


@dataclass(frozen=True)
class Held:
    """A claimed machine, and how patiently it is waited for."""

    task: MachineTask
    reach: ActivityConfig
    reach_leaving: ActivityConfig


async def claim(run: RunHeader) -> Held:
    """Takes the machine for this run."""
    claimed: Claimed = await call(
        RecordActivities.claim_machine,
        RunRef(run_id=run.run_id),
        options.RECORD,
        f"take the machine for {run.name}",
    )
    workflow.set_current_details(f"{run.name} on machine {claimed.machine} ({claimed.address})")
    return Held(
        task=MachineTask(run_id=run.run_id, machine_id=claimed.machine_id, token=claimed.token),
        reach=options.reach(claimed.reach_tries),
        reach_leaving=options.reach(min(claimed.reach_tries, options.LEAVING_TRIES)),
    )


async def reach_and_plan(task: MachineTask, patience: ActivityConfig) -> PlanOutline:
    """Waits until the machine answers, then compiles what it will get."""
    await call(MachineActivities.await_ssh, task, patience, "wait until the machine answers over SSH")
    return await call(
        MachineActivities.make_plan, task, patience, "read the machine's facts and compile the plan"
    )


@dataclass(frozen=True)
class PlanRun:
    """The plan of one run, carried out on its machine."""

    run: RunHeader
    task: MachineTask
    plan: PlanOutline
    holding: Holding

    async def to_end(self) -> None:
        """Runs every step; raises the ActivityError of the first that fails and may not be passed over."""
        for step in self.plan.steps:
            refuse_cancelled()
            await self._until_settled(step)

    async def _until_settled(self, step: StepHeader) -> None:
        """One step until it is done, passed over, or given up by its profile or by a person."""
        begun = 0
        while True:
            try:
                begun = await self._with_retries(step, begun)
                return
            except StepFailed as failed:
                begun = failed.attempt
                if step.on_failure is OnFailure.CONTINUE and failed.card.is_of_step:
                    workflow.logger.warning(
                        "step %s failed and is passed over, as its profile says", step.name
                    )
                    return
                if not self._holds(step) or failed.card.failure_class in _DECIDED:
                    raise failed.error from failed.error.cause
                verdict = await self.holding.wait(self.run.run_id, self.run.name, failed.card)
                if verdict is Verdict.ABORT:
                    raise failed.error from failed.error.cause

    def _holds(self, step: StepHeader) -> bool:
        """A terminate is held by nothing: it always ends, and its machine is cleaned."""
        return step.on_failure is OnFailure.HOLD and self.run.action != "terminate"

    async def _with_retries(self, step: StepHeader, begun: int) -> int:
        """As often as the step's profile allows. The attempt is counted here, and is part of the step's key.

        `begun` attempts were made before. Returns how many there are now; raises StepFailed with it.
        """
        attempt = begun
        failed = lost = 1
        while True:
            attempt += 1
            try:
                retry_in = step.backoff_seconds if failed < step.attempts else None
                await self._attempt(step, attempt, retry_in)
                return attempt
            except ActivityError as error:
                if cancelled_by(error):
                    raise
                card = current_card(error)
                if card.is_of_step and failed < step.attempts:
                    failed += 1
                    pause = timedelta(seconds=step.backoff_seconds)
                    await workflow.sleep(pause, summary=f"retry {step.name}")
                elif card.failure_class is FailureClass.LOST_MACHINE and step.has_check and lost < LOST_TRIES:
                    lost += 1
                else:
                    raise StepFailed(attempt, card, error) from error

    async def _attempt(self, step: StepHeader, attempt: int, retry_in: int | None) -> None:
        tried = f", attempt {attempt}" if attempt > 1 else ""
        await call(
            StepActivities.run_step,
            StepTask(
                run_id=self.task.run_id,
                machine_id=self.task.machine_id,
                token=self.task.token,
                position=step.position,
                attempt=attempt,
                retry_in=retry_in,
            ),
            options.step(step.timeout_seconds),
            f"step {step.position + 1}/{self.plan.total} {step.summary}{tried}",
        )


class StepFailed(Exception):  # noqa: N818  # never leaves this module
    """A step that has used up its attempts."""

    def __init__(self, attempt: int, card: FailureCard, error: ActivityError) -> None:
        super().__init__(card.message)
        self.attempt = attempt
        self.card = card
        self.error = error
