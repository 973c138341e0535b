"""The workflow of one run, if it is that run's and not another's under the same id."""

from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from database.operations import BATCH_SIZE
from database.tables import Run
from domain.workflow_ids import batch_workflow_id, run_workflow_id

RPC_TIMEOUT = timedelta(seconds=10)


async def running_child(client: Client, run: Run) -> WorkflowHandle[Any, Any] | None:
    """The very execution that is at work for `run`; None when there is none. Raises RPCError."""
    workflow_id = run_workflow_id(run.kind, run.node_id or run.machine_id)
    try:
        described = await client.get_workflow_handle(workflow_id).describe(rpc_timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise
    mine = described.parent_id == batch_workflow_id(run.operation_id, run.position // BATCH_SIZE)
    if not mine or described.status is not WorkflowExecutionStatus.RUNNING:
        return None
    return client.get_workflow_handle(workflow_id, run_id=described.run_id)
