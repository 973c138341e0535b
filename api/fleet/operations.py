"""operations.get, list, steps, logs: how far work is. What decides about it is in `decisions`."""

import base64
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field, StringConstraints
from sqlalchemy.ext.asyncio import AsyncSession

from api.access import Caller
from api.cluster.models import RunName
from api.cluster.operation_records import operation_record, operation_records
from api.cluster.records import card_text, moment
from api.context import Context
from api.fleet.fields import ClusterName, ListInput, OperationId, TenantInput, page_body
from api.fleet.methods import add_method
from database import operation_queries
from database.clusters import find_cluster
from database.log_queries import read_log
from database.tables import Operation, Run, StepRun
from domain.permissions import Permission
from domain.states import RunState

router = APIRouter()


class GetOperation(TenantInput):
    """operations.get."""

    operationId: OperationId  # noqa: N815


class ListOperations(ListInput):
    """operations.list; `cluster` is a cluster's name."""

    cluster: ClusterName | None = None
    state: Annotated[str, StringConstraints(pattern=f"^({'|'.join(RunState)})$")] | None = None


class ListSteps(ListInput):
    """operations.steps; `name` is a node's or machine's, whose steps alone are meant."""

    operationId: OperationId  # noqa: N815
    name: RunName | None = None


class ReadLog(TenantInput):
    """operations.logs; `offset` in bytes of the stream."""

    stepRunId: int = Field(ge=1, le=9_223_372_036_854_775_807)  # noqa: N815
    stream: Literal["stdout", "stderr"] = "stdout"
    offset: int = Field(default=0, ge=0, le=9_223_372_036_854_775_807)


def _in_fleet(operation: Operation, record: dict[str, object]) -> dict[str, object]:
    return {
        **record,
        "nodeId": operation.machine_id,
        "clusterId": operation.cluster_id,
        "runCount": operation.run_count,
    }


async def shown(context: Context, session: AsyncSession, operation: Operation) -> dict[str, object]:
    """The record of one operation in this surface's answers."""
    return _in_fleet(operation, await operation_record(session, context.settings, operation))


async def get_operation(
    context: Context, session: AsyncSession, caller: Caller, body: GetOperation
) -> dict[str, object]:
    """One operation with the progress of each of its runs."""
    operation = await operation_queries.find_operation(session, caller.tenant_id, body.operationId)
    caller.authorize()
    return {"operation": await shown(context, session, operation)}


async def list_operations(
    context: Context, session: AsyncSession, caller: Caller, body: ListOperations
) -> dict[str, object]:
    """The tenant's operations, newest first."""
    cluster = await find_cluster(session, caller.tenant_id, body.cluster) if body.cluster else None
    caller.authorize()
    page = await operation_queries.list_operations(
        session,
        caller.tenant_id,
        body.page(),
        cluster_id=cluster.id if cluster else None,
        state=body.state,
    )
    records = await operation_records(session, context.settings, page.rows)
    return page_body(page, [_in_fleet(*pair) for pair in zip(page.rows, records, strict=True)])


def _step_record(step: StepRun, run: Run) -> dict[str, object]:
    return {
        "stepRunId": step.id,
        "runId": str(run.id),
        "name": run.name,
        "nodeId": str(run.node_id or run.machine_id),
        "machineId": step.machine_id,
        "position": step.position,
        "step": step.name,
        "uses": step.uses,
        "attempt": step.attempt,
        "state": step.state,
        "outcome": step.outcome,
        "outputs": step.outputs,
        "exitStatus": step.exit_status,
        "signal": step.signal,
        "message": card_text(step.card),
        "card": step.card,
        "startTime": moment(step.started_at),
        "endTime": moment(step.ended_at),
        "stdoutSize": step.stdout_size,
        "stderrSize": step.stderr_size,
    }


async def list_steps(
    context: Context, session: AsyncSession, caller: Caller, body: ListSteps
) -> dict[str, object]:
    """Every attempt of every step of an operation, in the order in which they began."""
    operation = await operation_queries.find_operation(session, caller.tenant_id, body.operationId)
    caller.authorize()
    page = await operation_queries.list_steps(session, operation.id, body.page(), name=body.name)
    return page_body(page, [_step_record(step, run) for step, run in page.rows])


async def read_logs(
    context: Context, session: AsyncSession, caller: Caller, body: ReadLog
) -> dict[str, object]:
    """A step's output from an offset on: as text, and byte for byte in base 64."""
    part = await read_log(session, caller.tenant_id, body.stepRunId, body.stream, body.offset)
    caller.authorize()
    return {
        "data": part.data.decode("utf-8", "replace"),
        "dataBase64": base64.b64encode(part.data).decode(),
        "nextOffset": part.next_offset,
        "ended": part.ended,
    }


_READ = Permission.OPERATIONS_READ
add_method(router, "operations", "get", _READ, GetOperation, get_operation)
add_method(router, "operations", "list", _READ, ListOperations, list_operations)
add_method(router, "operations", "steps", _READ, ListSteps, list_steps)
add_method(router, "operations", "logs", _READ, ReadLog, read_logs)
