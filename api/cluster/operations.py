"""`/operations`: what callers poll."""

from fastapi import APIRouter, Request, Response
from sqlalchemy.ext.asyncio import AsyncSession

from api.access import Caller
from api.answers import Answer
from api.cluster.records import operation_record
from api.context import context_of
from api.routing import add_reader
from database.operation_queries import (
    count_runs,
    find_operation,
    newest_operations,
    operation_of_request,
    progress_of,
)
from database.refusals import Refusal, RefusalCode
from domain.permissions import Permission

# The contract knows no pages here; older ones are found by id, by request id, or through the fleet API.
LIST_LIMIT = 1_000

router = APIRouter(tags=["operations"])


async def list_operations(request: Request, session: AsyncSession, caller: Caller) -> Response:
    """The tenant's newest 1,000 operations, newest first; with `request_id` the one that took it, or none."""
    caller.authorize()
    request_id = request.query_params.get("request_id")
    if request_id == "":
        raise Refusal(RefusalCode.INVALID_INPUT, "request_id is empty", status=400)
    if request_id is None:
        found = await newest_operations(session, caller.tenant_id, LIST_LIMIT)
    else:
        one = None
        if "\0" not in request_id:
            one = await operation_of_request(session, caller.tenant_id, request_id)
        found = [one] if one else []
    counts = await count_runs(session, [operation.id for operation in found])
    ui = context_of(request).settings.temporal_ui
    return Answer([operation_record(operation, counts[operation.id], ui) for operation in found])


async def show_operation(request: Request, session: AsyncSession, caller: Caller) -> Response:
    """One operation with the progress of each of its nodes."""
    operation = await find_operation(session, caller.tenant_id, request.path_params["operation"])
    caller.authorize()
    counts = await count_runs(session, [operation.id])
    progress = await progress_of(session, operation.id)
    ui = context_of(request).settings.temporal_ui
    return Answer(operation_record(operation, counts[operation.id], ui, progress))


add_reader(
    router,
    "/operations/",
    Permission.CLUSTERS_READ,
    list_operations,
    query={"request_id": "only the operation that took this request id, or none"},
)
add_reader(router, "/operations", Permission.CLUSTERS_READ, list_operations, include_in_schema=False)
add_reader(router, "/operations/{operation}", Permission.CLUSTERS_READ, show_operation)
