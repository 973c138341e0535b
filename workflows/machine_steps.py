"""What node workflows share: reach the machine, plan, and run the plan's steps one after another."""

from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception
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
    from workflows import options
    from workflows.calls import call
    from workflows.failures import current_card

# A step that was lost with its machine is run again only where its check makes that safe, and not for ever.
LOST_TRIES = 3
_AUTHORS_RETRY = frozenset({FailureClass.EXIT, FailureClass.SIGNAL, FailureClass.TIMEOUT})


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


async def run_plan(task: MachineTask, plan: PlanOutline) -> None:
    """Runs every step; raises the ActivityError of the first that fails and may not be passed over."""
    for step in plan.steps:
        try:
            await _run_with_retries(task, step, of=len(plan.steps))
        except ActivityError as error:
            if is_cancelled_exception(error) or not step.keep_going:
                raise
            if current_card(error).failure_class not in _AUTHORS_RETRY:
                raise
            workflow.logger.warning("step %s failed and is passed over, as its profile says", step.name)


async def _run_with_retries(task: MachineTask, step: StepHeader, *, of: int) -> None:
    """One step. The attempt is counted here, in workflow state, and is part of the step's key."""
    attempt = failed = lost = 1
    while True:
        try:
            await _attempt(task, step, attempt, of)
            return
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            card: FailureCard = current_card(error)
            if card.failure_class in _AUTHORS_RETRY and failed < step.attempts:
                failed += 1
                await workflow.sleep(timedelta(seconds=step.backoff_seconds), summary=f"retry {step.name}")
            elif card.failure_class is FailureClass.LOST_MACHINE and step.has_check and lost < LOST_TRIES:
                lost += 1
            else:
                raise
            attempt += 1


async def _attempt(task: MachineTask, step: StepHeader, attempt: int, of: int) -> None:
    tried = f", attempt {attempt}" if attempt > 1 else ""
    await call(
        StepActivities.run_step,
        StepTask(
            run_id=task.run_id,
            machine_id=task.machine_id,
            token=task.token,
            position=step.position,
            attempt=attempt,
        ),
        options.step(step.timeout_seconds),
        f"step {step.position + 1}/{of} {step.summary}{tried}",
    )
