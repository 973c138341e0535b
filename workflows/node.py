"""One node's way to its target: `node/<node id>`, a child of its operation's batch."""

import asyncio

from temporalio import workflow
from temporalio.exceptions import ActivityError, FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.signatures import (
        CustodyTask,
        HoldRef,
        MachineActivities,
        MachineTask,
        RecordActivities,
        RunEnd,
        RunHeader,
        StepActivities,
    )
    from domain.failures import FailureCard, FailureClass
    from domain.holds import Verdict
    from domain.states import RunState
    from workflows import options
    from workflows.calls import call, uncut
    from workflows.failures import current_card, failure, note
    from workflows.holding import Holding
    from workflows.machine_steps import PlanRun, claim, reach_and_plan

# How the classes of failures that are somebody's decision end a run; every other one fails it.
_ENDS = {
    FailureClass.SUPERSEDED: RunState.SUPERSEDED,
    FailureClass.CANCELLED: RunState.CANCELED,
}


@workflow.defn(name="NodeRun")
class NodeWorkflow:
    """Create: claim, reach, plan, steps, ready. Terminate: claim, reach, steps, hand the machine over."""

    def __init__(self) -> None:
        self._holding = Holding()
        self._task: MachineTask | None = None

    @workflow.signal
    def resume(self, ref: HoldRef) -> None:
        """Runs the step that failed again, and goes on."""
        self._holding.decide(ref, Verdict.RESUME)

    @workflow.signal
    def abort(self, ref: HoldRef) -> None:
        """Gives the held run up."""
        self._holding.decide(ref, Verdict.ABORT)

    @workflow.run
    async def run(self, run: RunHeader) -> None:
        """Fails with the node's failure card, after it has been recorded."""
        try:
            if run.action == "terminate":
                await self._terminate(run)
            else:
                await self._create(run)
        except (FailureError, asyncio.CancelledError) as error:
            if is_cancelled_exception(error) or workflow.cancellation_reason() is not None:
                # Whatever an activity met after the cancel was asked for: Temporal does not try it again
                # then, so its failure says nothing of the step. Proof and record come all the same.
                await uncut(self._end_cancelled(run))
                raise asyncio.CancelledError from error
            card = (
                current_card(error)
                if isinstance(error, FailureError)
                else note(FailureClass.INTERNAL, str(error))
            )
            if card.failure_class is FailureClass.CANCELLED and run.action != "terminate":
                # The activity learnt of it from the records; the workflow's own cancel is still on its way.
                await uncut(self._end_cancelled(run))
                raise failure(card) from error
            await self._record_end(run, _ENDS.get(card.failure_class, RunState.FAILED), card)
            raise failure(card) from error

    async def _create(self, run: RunHeader) -> None:
        held = await claim(run)
        self._task = task = held.task
        plan = await reach_and_plan(task, held.reach)
        await PlanRun(run, task, plan, self._holding).to_end()
        if workflow.cancellation_reason() is not None:
            raise asyncio.CancelledError
        await call(
            MachineActivities.finish_node,
            task,
            held.reach,
            f"check {run.name} and report it ready",
        )

    async def _terminate(self, run: RunHeader) -> None:
        """Whatever happens on the machine, the node ends and its name is free."""
        held = await claim(run)
        task = held.task
        card: FailureCard | None = None
        try:
            plan = await reach_and_plan(task, held.reach_leaving)
            await PlanRun(run, task, plan, self._holding).to_end()
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            card = current_card(error)
        await call(
            RecordActivities.hand_over_machine,
            CustodyTask(run_id=run.run_id, machine_id=task.machine_id, card=card),
            options.RECORD,
            f"end {run.name} and hand its machine over for cleaning",
        )

    async def _end_cancelled(self, run: RunHeader) -> None:
        await self._prove_nothing_left(run)
        card = note(FailureClass.CANCELLED, f"{run.action} of {run.name} was cancelled")
        await self._record_end(run, RunState.CANCELED, card)

    async def _prove_nothing_left(self, run: RunHeader) -> None:
        if self._task is not None:
            await call(
                StepActivities.confirm_cancel,
                self._task,
                options.CONFIRM,
                f"prove that no step of {run.name} is left on its machine",
            )

    async def _record_end(self, run: RunHeader, state: RunState, card: FailureCard) -> None:
        await call(
            RecordActivities.end_run,
            RunEnd(run_id=run.run_id, state=state, card=card),
            options.RECORD,
            f"record that {run.action} of {run.name} ended as {state}",
        )
