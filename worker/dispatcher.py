"""The dispatcher: outbox rows become workflows. Woken by NOTIFY, and by a slow poll for what that missed."""

import asyncio
from datetime import timedelta

import structlog
from sqlalchemy.exc import SQLAlchemyError
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from activities.signatures import OperationRef
from database.outbox import DispatchOutline, dispatch_outline, lock_due_row, mark_dispatched, put_off
from database.tables import Outbox
from database.unit_of_work import Database
from domain.workflow_ids import operation_workflow_id
from workflows.attributes import attributes
from workflows.operation import OperationWorkflow

log = structlog.get_logger(__name__)
# Rows taken at the same time; each is held under its own lock, in its own transaction.
LANES = 4
RPC_TIMEOUT = timedelta(seconds=10)


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
            outline = await dispatch_outline(session, row.operation_id)
            try:
                await self._start(row, outline)
            except (RPCError, RuntimeError) as error:
                log.warning(
                    "dispatcher: the workflow engine did not take it",
                    operation=str(row.operation_id),
                    error=str(error),
                )
                await put_off(session, row, str(error) or type(error).__name__)
            else:
                mark_dispatched(row)
                log.info("dispatched", operation=str(row.operation_id))
            return True

    async def _start(self, row: Outbox, outline: DispatchOutline) -> None:
        """Safe to repeat: a workflow that runs is left running, one that ended is not run again."""
        try:
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
                rpc_timeout=RPC_TIMEOUT,
            )
        except WorkflowAlreadyStartedError:
            return
