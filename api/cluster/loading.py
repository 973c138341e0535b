"""What every cluster route begins with: the cluster, decided, and what its records need."""

from fastapi import Request
from sqlalchemy.ext.asyncio import AsyncSession

from api.access import Caller
from api.cluster.records import NodeRecords
from database.clusters import NAME, arrays_of, find_cluster
from database.machine_types import types_of_pools
from database.pools import regions_of
from database.refusals import not_found
from database.tables import Cluster


async def visible_cluster(request: Request, session: AsyncSession, caller: Caller) -> Cluster:
    """The cluster of the path, when the caller's tenant has it and the caller may do this to it."""
    name = request.path_params["cluster"]
    if not NAME.match(name):
        raise not_found(f"there is no cluster {name!r:.100}")
    cluster = await find_cluster(session, caller.tenant_id, name)
    caller.authorize()
    return cluster


async def load_records(session: AsyncSession, cluster: Cluster) -> NodeRecords:
    """The maker of this cluster's node records."""
    arrays = await arrays_of(session, [cluster.id])
    pool_ids = sorted({array.pool_id for array in arrays})
    return NodeRecords(
        cluster.name, arrays, await types_of_pools(session, pool_ids), await regions_of(session, pool_ids)
    )
