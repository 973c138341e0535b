"""The dispatcher: outbox rows become workflows. Woken by NOTIFY, and by a slow poll for what that missed."""

import asyncio
import uuid
from contextlib import suppress
from typing import Any

import structlog
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession
from temporalio.client import Client, WorkflowHandle
from temporalio.common import Priority, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.signatures import HoldRef, MachineTask, OperationRef
from database.operations import close_operation
from database.outbox import DispatchOutline, dispatch_outline, lock_due_row, mark_dispatched, put_off
from database.steps import machine_of_steps
from database.tables import PROVE, Outbox, Run
from database.unit_of_work import Database
from domain.holds import Verdict
from domain.states import RunState
from domain.workflow_ids import operation_workflow_id, proof_workflow_id
from worker.children import RPC_TIMEOUT, running_child
from workflows.attributes import attributes
from workflows.node import NodeWorkflow
from workflows.operation import OperationWorkflow
from workflows.proof import ProofWorkflow

log = structlog.get_logger(__name__)
# Rows taken at the same time; each is held under its own lock, in its own transaction.
LANES = 4
# The workflow engine takes this many bytes.
FAIRNESS_KEY_LENGTH = 64


class Dispatcher:
    """Several may run, in as many workers: a row is told once because it is locked while it is told."""

    def __init__(
        self, database: Database, client: Client, task_queue: str, *, poll_seconds: float = 2.0
    ) -> None:
        self._database = database
        self._client = client
        self._task_queue = task_queue
        self._poll_seconds = poll_seconds
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Something was submitted."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._wake.clear()
            try:
                await asyncio.gather(*(self._drain() for _ in range(LANES)))
            except (SQLAlchemyError, OSError) as error:
                log.warning("dispatcher: the database is away", error=str(error))
                await asyncio.sleep(1)
            try:
                await asyncio.wait_for(self._wake.wait(), self._poll_seconds)
            except TimeoutError:
                continue

    async def _drain(self) -> None:
        while await self._dispatch_one():
            continue

    async def _dispatch_one(self) -> bool:
        async with self._database.begin() as session:
            row = await lock_due_row(session)
            if row is None:
                return False
            try:
                await self._tell(session, row)
            except (RPCError, RuntimeError) as error:
                log.warning(
                    "dispatcher: the workflow engine did not take it",
                    operation=str(row.operation_id),
                    desired=row.desired,
                    error=str(error),
                )
                await put_off(session, row, str(error) or type(error).__name__)
            else:
                mark_dispatched(row)
                log.info("dispatched", operation=str(row.operation_id), desired=row.desired)
            return True

    async def _tell(self, session: AsyncSession, row: Outbox) -> None:
        """All of it is safe to repeat."""
        if row.run_id is not None:
            run = (await session.execute(select(Run).where(Run.id == row.run_id))).scalar_one()
            if row.desired == PROVE:
                await self._prove(session, run)
            else:
                await self._tell_run(row, run)
            return
        outline = await dispatch_outline(session, row.operation_id)
        if row.desired == RunState.CANCELED:
            await self._cancel(session, row.operation_id)
        elif outline.canceled:
            # Cancelled before it was started: nothing has begun, and nothing will.
            await close_operation(session, row.operation_id)
        else:
            await self._start(row, outline)

    async def _cancel(self, session: AsyncSession, operation_id: uuid.UUID) -> None:
        handle = self._client.get_workflow_handle(operation_workflow_id(operation_id))
        if not await _cancel_open(handle):
            await close_operation(session, operation_id)

    async def _tell_run(self, row: Outbox, run: Run) -> None:
        """A run whose workflow is gone, or that has ended, has nobody left to tell."""
        child = await running_child(self._client, run)
        if child is None:
            return
        if row.desired == RunState.CANCELED:
            await _cancel_open(child)
            return
        assert row.hold is not None, "a decision is about one hold"
        signal = NodeWorkflow.resume if row.desired == Verdict.RESUME else NodeWorkflow.abort
        try:
            await child.signal(signal, HoldRef(run_id=run.id, number=row.hold), rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise

    async def _prove(self, session: AsyncSession, run: Run) -> None:
        assert run.claim_token is not None, "a run with steps has claimed its machine"
        outline = await dispatch_outline(session, run.operation_id)
        machine = await machine_of_steps(session, run.id)
        with suppress(WorkflowAlreadyStartedError):
            await self._client.start_workflow(
                ProofWorkflow.run,
                MachineTask(run_id=run.id, machine_id=machine, token=run.claim_token),
                id=proof_workflow_id(run.id),
                task_queue=self._task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                static_summary=f"end what {run.action} of {run.name} left",
                search_attributes=attributes(
                    tenant=outline.tenant_id, action=PROVE, cluster=outline.cluster, node=run.name
                ),
                priority=Priority(fairness_key=outline.tenant_id[:FAIRNESS_KEY_LENGTH]),
                rpc_timeout=RPC_TIMEOUT,
            )

    async def _start(self, row: Outbox, outline: DispatchOutline) -> None:
        """A workflow that runs is left running, one that ended is not run again."""
        with suppress(WorkflowAlreadyStartedError):
            await self._client.start_workflow(
                OperationWorkflow.run,
                OperationRef(operation_id=row.operation_id),
                id=operation_workflow_id(row.operation_id),
                task_queue=self._task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                static_summary=f"{outline.action} {outline.cluster or ''}".strip(),
                search_attributes=attributes(
                    tenant=outline.tenant_id, action=outline.action, cluster=outline.cluster
                ),
                # Children and activities inherit it: tenants take turns, however much one of them asked for.
                priority=Priority(fairness_key=outline.tenant_id[:FAIRNESS_KEY_LENGTH]),
                rpc_timeout=RPC_TIMEOUT,
            )


async def _cancel_open(handle: WorkflowHandle[Any, Any]) -> bool:
    """Asks for the end of a workflow; False when it is not there or has closed."""
    try:
        await handle.cancel(rpc_timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True
