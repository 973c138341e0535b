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
        RunHeader,
    )
    from domain.failures import FailureCard
    from domain.holds import Verdict
    from workflows import options
    from workflows.calls import call, refuse_cancelled
    from workflows.ending import end_without_success
    from workflows.failures import current_card
    from workflows.holding import Holding
    from workflows.machine_steps import PlanRun, claim, reach_and_plan


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
            await end_without_success(run, self._task, error)

    async def _create(self, run: RunHeader) -> None:
        held = await claim(run)
        self._task = task = held.task
        plan = await reach_and_plan(task, held.reach)
        await PlanRun(run, task, plan, self._holding).to_end()
        refuse_cancelled()
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
