"""Records of operations, the same on both surfaces: what the clients know, then what they drop."""

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from api.addresses import workflow_url
from api.cluster.records import card_text, moment
from api.settings import ApiSettings
from database.operation_queries import Progress, Summary, progress_of, summaries_of
from database.tables import Operation
from domain.workflow_ids import operation_workflow_id

# What steps did to their machines, as it is counted.
_CHANGES = ("changed", "no-change", "skipped")


async def operation_records(
    session: AsyncSession, settings: ApiSettings, operations: Sequence[Operation]
) -> list[dict[str, Any]]:
    """The records of operations in their order, without progress."""
    summaries = await summaries_of(session, operations)
    return [_record(settings, operation, summaries[operation.id]) for operation in operations]


async def operation_record(
    session: AsyncSession, settings: ApiSettings, operation: Operation
) -> dict[str, Any]:
    """The record of one operation, with the progress of each of its runs and what their steps did."""
    (record,) = await operation_records(session, settings, [operation])
    progress = await progress_of(session, operation.id)
    total = Counter[str]()
    for one in progress:
        total.update(one.changes)
    return {**record, "changes": _changes(total), "progress": [_progress(one) for one in progress]}


def _record(settings: ApiSettings, operation: Operation, summary: Summary) -> dict[str, Any]:
    return {
        "action": operation.action,
        "startTime": moment(operation.created_at),
        "id": str(operation.id),
        "state": operation.state,
        "message": operation.message,
        "reason": card_text(operation.card),
        "card": operation.card,
        "counts": summary.counts,
        "cluster": summary.cluster,
        "machine": summary.machine,
        "requestId": operation.request_id,
        "retryOf": _text(operation.retry_of),
        "createdBy": operation.created_by,
        "canceledBy": operation.canceled_by,
        "endTime": moment(operation.ended_at),
        "workflowId": operation_workflow_id(operation.id),
        "workflowUrl": workflow_url(settings, operation.id),
    }


def _progress(one: Progress) -> dict[str, Any]:
    run = one.run
    return {
        "name": run.name,
        "nodeId": str(run.node_id or run.machine_id),
        "runId": str(run.id),
        "state": run.state,
        "unreachable": one.unreachable,
        "step": one.step,
        "waiting": run.waiting,
        "changes": _changes(one.changes),
        "message": card_text(run.card),
        "card": run.card,
        "canceledBy": run.canceled_by,
        "retryOf": _text(run.retry_of),
        "firstStep": run.first_step,
        "startTime": moment(run.started_at),
        "endTime": moment(run.ended_at),
    }


def _changes(counted: Mapping[str, int]) -> dict[str, int]:
    return {name: counted.get(name, 0) for name in _CHANGES}


def _text(key: uuid.UUID | None) -> str | None:
    return None if key is None else str(key)
