"""One node's way to its target: `node/<node id>`, a child of its operation's batch."""

import asyncio

from temporalio import workflow
from temporalio.exceptions import ActivityError, FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.signatures import (
        CustodyTask,
        MachineActivities,
        RecordActivities,
        RunEnd,
        RunHeader,
    )
    from domain.failures import FailureCard, FailureClass
    from domain.states import RunState
    from workflows import options
    from workflows.calls import call
    from workflows.failures import current_card, failure, note
    from workflows.machine_steps import claim, reach_and_plan, run_plan


@workflow.defn(name="NodeRun")
class NodeWorkflow:
    """Create: claim, reach, plan, steps, ready. Terminate: claim, reach, steps, hand the machine over."""

    @workflow.run
    async def run(self, run: RunHeader) -> None:
        """Fails with the node's failure card, after it has been recorded."""
        try:
            if run.action == "terminate":
                await self._terminate(run)
            else:
                await self._create(run)
        except (FailureError, asyncio.CancelledError) as error:
            if is_cancelled_exception(error):
                card = note(FailureClass.CANCELLED, f"{run.action} of {run.name} was cancelled")
                # The run must be recorded although this workflow is being cancelled.
                await asyncio.shield(self._record_end(run, RunState.CANCELED, card))
                raise
            card = (
                current_card(error)
                if isinstance(error, FailureError)
                else note(FailureClass.INTERNAL, str(error))
            )
            superseded = card.failure_class is FailureClass.SUPERSEDED
            await self._record_end(run, RunState.SUPERSEDED if superseded else RunState.FAILED, card)
            raise failure(card) from error

    async def _create(self, run: RunHeader) -> None:
        held = await claim(run)
        task = held.task
        plan = await reach_and_plan(task, held.reach)
        await run_plan(task, plan)
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
            await run_plan(task, plan)
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

    async def _record_end(self, run: RunHeader, state: RunState, card: FailureCard) -> None:
        await call(
            RecordActivities.end_run,
            RunEnd(run_id=run.run_id, state=state, card=card),
            options.RECORD,
            f"record that {run.action} of {run.name} ended as {state}",
        )
