"""`/clusters/{cluster}/nodes`: list, create, terminate."""

from fastapi import APIRouter, Request, Response
from sqlalchemy.ext.asyncio import AsyncSession

from api.access import Caller
from api.addresses import operation_url
from api.answers import Answer
from api.cluster.loading import load_records, visible_cluster
from api.cluster.models import CreateNodes, ManageNodes
from api.cluster.operation_records import operation_records
from api.context import context_of
from api.routing import add_reader, add_writer
from database.nodes import Selection, nodes_of_cluster
from database.operation_queries import find_operation, operation_of_request
from database.refusals import Detail, Refusal, RefusalCode, invalid, not_found
from database.set_requests import SetRequest
from database.submission import create_nodes
from database.tables import Operation
from database.termination import terminate_nodes
from domain.permissions import Permission

router = APIRouter(tags=["cluster nodes"])


async def list_nodes(request: Request, session: AsyncSession, caller: Caller) -> Response:
    """All nodes of a cluster, or with `operation` or `request_id` those of one operation."""
    cluster = await visible_cluster(request, session, caller)
    operation = await _asked_operation(request, session, caller.tenant_id)
    rows = await nodes_of_cluster(session, cluster.id, operation_id=operation.id if operation else None)
    records = await load_records(session, cluster)
    body: dict[str, object] = {"nodes": [records.record(row) for row in rows]}
    if operation is not None:
        settings = context_of(request).settings
        (body["operation"],) = await operation_records(session, settings, [operation])
    return Answer(body)


async def _asked_operation(request: Request, session: AsyncSession, tenant_id: str) -> Operation | None:
    query = request.query_params
    operation_id, request_id = query.get("operation"), query.get("request_id")
    if operation_id is not None and request_id is not None:
        raise Refusal(RefusalCode.INVALID_INPUT, "operation and request_id exclude each other", status=400)
    if operation_id == "" or request_id == "":
        raise Refusal(RefusalCode.INVALID_INPUT, "operation or request_id is empty", status=400)
    if operation_id is not None:
        return await find_operation(session, tenant_id, operation_id)
    if request_id is None:
        return None
    found = None if "\0" in request_id else await operation_of_request(session, tenant_id, request_id)
    if found is None:
        # Clients look for these words.
        raise not_found(f"No operation found for request id {request_id}")
    return found


async def create(request: Request, session: AsyncSession, caller: Caller, body: CreateNodes) -> Response:
    """Adds nodes. Answers at once with an operation to poll; what does not fit is said per set."""
    cluster = await visible_cluster(request, session, caller)
    made = await create_nodes(
        session,
        tenant_id=caller.tenant_id,
        actor=caller.name,
        cluster=cluster,
        sets=[
            SetRequest(
                node_array=asked.nodearray,
                count=asked.count,
                machine_type=asked.definition.machineType if asked.definition else None,
                name_format=asked.nameFormat,
                name_offset=asked.nameOffset or 1,
                attributes=asked.nodeAttributes or {},
                placement_group=asked.placementGroupId or None,
            )
            for asked in body.sets
        ],
        request_id=body.requestId,
    )
    sets = [
        {"added": done.added, "message": done.message} if done.message else {"added": done.added}
        for done in made.sets
    ]
    return Answer(
        {"operationId": str(made.operation_id), "sets": sets},
        status_code=202,
        headers={"Location": operation_url(request, made.operation_id)},
    )


def _selection(body: ManageNodes) -> Selection:
    if body.filter is not None:
        raise invalid(
            Detail(
                "filter",
                "filter is not served by this release; use ids, names, hostnames or ip_addresses",
            )
        )
    chosen = (body.ids, body.names, body.hostnames, body.ip_addresses)
    if all(selector is None for selector in chosen):
        raise invalid(Detail("body", "says no nodes; use ids, names, hostnames or ip_addresses"))
    return Selection(*(selector or () for selector in chosen))


async def terminate(request: Request, session: AsyncSession, caller: Caller, body: ManageNodes) -> Response:
    """Terminates nodes. Unknown ones are passed over; each of the others is answered for by itself."""
    wanted = _selection(body)
    cluster = await visible_cluster(request, session, caller)
    done = await terminate_nodes(
        session,
        tenant_id=caller.tenant_id,
        actor=caller.name,
        cluster=cluster,
        wanted=wanted,
        request_id=body.requestId,
    )
    nodes = [
        {"id": str(node.id), "name": node.name, "status": "Error", "error": node.error}
        if node.error
        else {"id": str(node.id), "name": node.name, "status": "OK"}
        for node in done.nodes
    ]
    return Answer(
        {"operationId": str(done.operation_id), "nodes": nodes},
        status_code=202,
        headers={"Location": operation_url(request, done.operation_id)},
    )


add_reader(
    router,
    "/clusters/{cluster}/nodes",
    Permission.CLUSTERS_READ,
    list_nodes,
    query={
        "operation": "only the nodes of the operation with this id; not together with request_id",
        "request_id": "only the nodes of the operation that took this request id",
    },
)
add_writer(
    router,
    "/clusters/{cluster}/nodes/create",
    Permission.CLUSTERS_OPERATE,
    CreateNodes,
    create,
    status_code=202,
)
add_writer(
    router,
    "/clusters/{cluster}/nodes/terminate",
    Permission.CLUSTERS_OPERATE,
    ManageNodes,
    terminate,
    status_code=202,
)
