"""An operation and its batches: fan out to one child per node or machine, in bounded windows."""

import asyncio
import logging
from collections.abc import Awaitable, Iterable

from temporalio import workflow
from temporalio.exceptions import (
    ChildWorkflowError,
    WorkflowAlreadyStartedError,
    is_cancelled_exception,
)
from temporalio.workflow import ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from activities.signatures import (
        BatchRef,
        BatchRuns,
        DisplaceRequest,
        OperationEnd,
        OperationOutline,
        OperationRef,
        RecordActivities,
        RunEnd,
        RunHeader,
    )
    from domain.failures import FailureClass
    from domain.states import RunState
    from domain.workflow_ids import batch_workflow_id, run_workflow_id
    from workflows import options
    from workflows.attributes import attributes
    from workflows.calls import call
    from workflows.failures import current_card, note
    from workflows.machine import MachineWorkflow
    from workflows.node import NodeWorkflow

# Batches of one operation at work at the same time. Within a batch all children are: what they do is bounded
# by the places of the workers, and one that hangs, or is held for a person, keeps nobody waiting.
BATCH_WINDOW = 10
# How often a terminate may find yet another run in its place.
DISPLACE_TRIES = 5


def child_id(run: RunHeader) -> str:
    """The workflow of one run."""
    return run_workflow_id(run.kind, run.subject)


async def _all(parts: Iterable[Awaitable[None]]) -> None:
    """Waits for every part, also when this workflow is cancelled: a part ends with its child, never before.

    A cancelled workflow ends as cancelled, also when every child took the cancel as its own result.
    """
    for result in await asyncio.gather(*parts, return_exceptions=True):
        if isinstance(result, BaseException) and not is_cancelled_exception(result):
            raise result
    if workflow.cancellation_reason() is not None:
        raise asyncio.CancelledError


@workflow.defn(name="Batch")
class BatchWorkflow:
    """At most 500 runs of an operation, all at the same time."""

    @workflow.run
    async def run(self, ref: BatchRef) -> None:
        """Ends when every run of the batch has ended; a run's failure is that run's result."""
        loaded: BatchRuns = await call(
            RecordActivities.load_batch, ref, options.RECORD, "load the runs of this batch"
        )
        await _all(self._to_end(run) for run in loaded.runs)

    async def _to_end(self, run: RunHeader) -> None:
        try:
            await self._drive(run)
        except ChildWorkflowError as error:
            # The child records its own end; this is for one that could not (terminated by hand, say).
            card = current_card(error).model_copy(update={"workflow_id": child_id(run)})
            state = RunState.CANCELED if is_cancelled_exception(error) else RunState.FAILED
            await self._record(RunEnd(run_id=run.run_id, state=state, card=card))

    async def _drive(self, run: RunHeader) -> None:
        for _ in range(DISPLACE_TRIES):
            try:
                await self._start_child(run)
                return
            except WorkflowAlreadyStartedError:
                # Only a terminate ends what runs. Anything else waits: that run has ended by its records, or
                # it may just be reporting the machine ready.
                cancel = run.kind == "node" and run.action == "terminate"
                await call(
                    RecordActivities.displace,
                    DisplaceRequest(workflow_id=child_id(run), operation_id=run.operation_id, cancel=cancel),
                    options.LOOK,
                    f"{'stop' if cancel else 'wait for'} what is running on {run.name}",
                )
        card = note(FailureClass.INTERNAL, f"another run of {run.name} holds workflow {child_id(run)}")
        await self._record(RunEnd(run_id=run.run_id, state=RunState.FAILED, card=card))

    async def _start_child(self, run: RunHeader) -> None:
        node = run.kind == "node"
        await workflow.execute_child_workflow(
            NodeWorkflow.run if node else MachineWorkflow.run,
            run,
            id=child_id(run),
            parent_close_policy=ParentClosePolicy.REQUEST_CANCEL,
            static_summary=f"{run.action} {run.name}",
            search_attributes=attributes(
                tenant=run.tenant_id,
                action=run.action,
                cluster=run.cluster,
                node=run.name if node else None,
                machine=None if node else run.name,
            ),
        )

    async def _record(self, end: RunEnd) -> None:
        await call(RecordActivities.end_run, end, options.RECORD, f"record the run as {end.state}")


@workflow.defn(name="Operation")
class OperationWorkflow:
    """`operation/<id>`: what one caller asked for, from the outbox to its final state."""

    @workflow.run
    async def run(self, ref: OperationRef) -> OperationEnd:
        """The operation's final state; the nodes' results are in the children and in the database."""
        outline: OperationOutline = await call(
            RecordActivities.open_operation, ref, options.RECORD, "open the operation"
        )
        about = f"{outline.action}: {outline.runs} run{'' if outline.runs == 1 else 's'}"
        workflow.set_current_details(about)
        try:
            window = asyncio.Semaphore(BATCH_WINDOW)
            await _all(self._batch(ref, batch, outline, window) for batch in range(outline.batches))
        finally:
            end: OperationEnd = await asyncio.shield(
                call(RecordActivities.end_operation, ref, options.RECORD, "add up the results")
            )
        workflow.set_current_details(f"{about}: {end.state}{f': {end.reason}' if end.reason else ''}")
        return end

    async def _batch(
        self, ref: OperationRef, batch: int, outline: OperationOutline, window: asyncio.Semaphore
    ) -> None:
        async with window:
            try:
                await workflow.execute_child_workflow(
                    BatchWorkflow.run,
                    BatchRef(operation_id=ref.operation_id, batch=batch),
                    id=batch_workflow_id(ref.operation_id, batch),
                    parent_close_policy=ParentClosePolicy.REQUEST_CANCEL,
                    static_summary=f"{outline.action}: batch {batch + 1} of {outline.batches}",
                    search_attributes=attributes(
                        tenant=outline.tenant_id, action=outline.action, cluster=outline.cluster
                    ),
                )
            except ChildWorkflowError as error:
                # Its runs record their own ends; the watchdog closes the operation after the last of them.
                level = logging.INFO if is_cancelled_exception(error) else logging.ERROR
                workflow.logger.log(level, "batch %s ended early: %s", batch, current_card(error).message)
