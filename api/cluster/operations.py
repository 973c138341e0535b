"""`/operations`: what callers poll, and how they end one."""

from fastapi import APIRouter, Request, Response
from sqlalchemy.ext.asyncio import AsyncSession

from api.access import Caller
from api.addresses import operation_url
from api.answers import Answer
from api.cluster.models import CancelOperation
from api.cluster.operation_records import operation_record, operation_records
from api.context import context_of
from api.routing import add_reader, add_writer
from database.cancellation import cancel_operation
from database.operation_queries import find_operation, newest_operations, operation_of_request
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
    return Answer(await operation_records(session, context_of(request).settings, found))


async def show_operation(request: Request, session: AsyncSession, caller: Caller) -> Response:
    """One operation with the progress of each of its nodes."""
    operation = await find_operation(session, caller.tenant_id, request.path_params["operation"])
    caller.authorize()
    return Answer(await operation_record(session, context_of(request).settings, operation))


async def cancel(request: Request, session: AsyncSession, caller: Caller, body: CancelOperation) -> Response:
    """Asks for the end of an operation, or of its runs of some nodes; asked twice it answers the same.

    What has not begun ends at once; of what runs, every process on its machine is ended first. 409 when it
    has ended in another way, and for a terminate.
    """
    operation = await find_operation(session, caller.tenant_id, request.path_params["operation"])
    caller.authorize()
    await cancel_operation(session, operation, actor=caller.name, names=body.names)
    return Answer(
        await operation_record(session, context_of(request).settings, operation),
        status_code=202,
        headers={"Location": operation_url(request, operation.id)},
    )


add_reader(
    router,
    "/operations/",
    Permission.CLUSTERS_READ,
    list_operations,
    query={"request_id": "only the operation that took this request id, or none"},
)
add_reader(router, "/operations", Permission.CLUSTERS_READ, list_operations, include_in_schema=False)
add_reader(router, "/operations/{operation}", Permission.CLUSTERS_READ, show_operation)
add_writer(
    router,
    "/operations/{operation}/cancel",
    Permission.CLUSTERS_OPERATE,
    CancelOperation,
    cancel,
    status_code=202,
)
