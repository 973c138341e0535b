"""`/clusters/{cluster}/status`: arrays, their buckets, and what each could still take."""

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy.ext.asyncio import AsyncSession

from api.access import Caller
from api.answers import Answer
from api.cluster.buckets import ClusterView
from api.cluster.loading import visible_cluster
from api.cluster.records import NodeRecords
from api.routing import add_reader
from database.buckets import last_shortages
from database.capacity import Allowance, supplies_of
from database.clusters import arrays_of
from database.machine_types import types_of_pools
from database.nodes import count_nodes, nodes_of_cluster
from database.pools import pools_of, regions_of
from database.quotas import quotas_of
from database.refusals import Refusal, RefusalCode
from domain.permissions import Permission
from domain.states import NodeStatus

router = APIRouter(tags=["cluster status"])


def wants_nodes(request: Request) -> bool:
    """`nodes=true`, or `nodes` without a value; Refusal with 400 for anything that is neither yes nor no."""
    value = request.query_params.get("nodes", "false").lower()
    if value in ("", "true", "1"):
        return True
    if value in ("false", "0"):
        return False
    raise Refusal(RefusalCode.INVALID_INPUT, "nodes must be true or false", status=400)


async def cluster_status(request: Request, session: AsyncSession, caller: Caller) -> Response:
    """Limits and use of every bucket, from a constant number of queries; with `nodes` the array nodes too."""
    with_nodes = wants_nodes(request)
    cluster = await visible_cluster(request, session, caller)
    arrays = await arrays_of(session, [cluster.id])
    pool_ids = sorted({array.pool_id for array in arrays})
    pools = await pools_of(session, pool_ids)
    quotas = await quotas_of(session, caller.tenant_id, pool_ids)
    types = await types_of_pools(session, pool_ids)
    regions = await regions_of(session, pool_ids)
    rows = []
    if with_nodes:
        found = await nodes_of_cluster(session, cluster.id)
        rows = [row for row in found if row.node_array_id and row.status != NodeStatus.OFF]
    view = ClusterView(
        arrays=arrays,
        pools=pools,
        regions=regions,
        types=types,
        supplies=await supplies_of(session, pool_ids),
        counts=await count_nodes(session, cluster.id),
        allowances={
            pool.id: Allowance(
                [row for row in quotas if row.pool_id == pool.id], owner=pool.tenant_id == caller.tenant_id
            )
            for pool in pools.values()
        },
        nodes=rows if with_nodes else None,
        now=datetime.now(UTC),
    )
    view.shortages = await last_shortages(session, view.bucket_ids())
    body: dict[str, Any] = {
        "state": cluster.state,
        "targetState": cluster.target_state,
        **view.totals(),
        "nodearrays": [view.array(array) for array in arrays],
    }
    if with_nodes:
        records = NodeRecords(cluster.name, arrays, types, regions)
        body["nodes"] = [records.record(row) for row in rows]
    return Answer(body)


add_reader(
    router,
    "/clusters/{cluster}/status",
    Permission.CLUSTERS_READ,
    cluster_status,
    query={"nodes": "true (or no value): with the nodes of arrays, and the active nodes of each bucket"},
)
