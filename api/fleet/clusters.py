"""clusters.create, get, list."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field, StringConstraints, field_validator
from sqlalchemy.ext.asyncio import AsyncSession

from api.access import Caller
from api.bodies import Input
from api.cluster.models import checked_attributes
from api.cluster.records import moment
from api.context import Context
from api.fleet.fields import ClusterName, ListInput, PoolId, TenantInput, TypeName, page_body
from api.fleet.methods import add_method
from database import clusters
from database.refusals import Detail, invalid
from database.tables import Cluster, NodeArray
from domain.permissions import Permission

router = APIRouter()

_MOST = 2_147_483_647


class ArrayInput(Input):
    """A node array of clusters.create."""

    name: ClusterName
    poolId: PoolId  # noqa: N815
    machineTypes: list[TypeName] = Field(default_factory=list, max_length=100)  # noqa: N815
    profile: Annotated[str, StringConstraints(min_length=1, max_length=256)]
    parameters: dict[str, Any] = Field(default_factory=dict)
    maxCount: int | None = Field(default=None, ge=0, le=_MOST)  # noqa: N815
    maxCoreCount: int | None = Field(default=None, ge=0, le=_MOST)  # noqa: N815
    shutdownPolicy: Literal["Terminate", "Deallocate"] = "Terminate"  # noqa: N815
    subnetId: Annotated[str, StringConstraints(max_length=255)] = ""  # noqa: N815
    attributes: dict[str, Any] = Field(default_factory=dict)

    @field_validator("parameters")
    @classmethod
    def _without_parameters(cls, value: dict[str, Any]) -> dict[str, Any]:
        if value:
            raise ValueError("profiles take no parameters in this release")
        return value

    @field_validator("attributes")
    @classmethod
    def _checked(cls, value: dict[str, Any]) -> dict[str, Any]:
        return checked_attributes(value)


class CreateCluster(TenantInput):
    """clusters.create."""

    name: ClusterName
    nodeArrays: list[ArrayInput] = Field(max_length=100)  # noqa: N815
    nodes: list[dict[str, Any]] = Field(default_factory=list)


class GetCluster(TenantInput):
    """clusters.get."""

    name: ClusterName


def cluster_record(cluster: Cluster, arrays: list[NodeArray]) -> dict[str, object]:
    """A cluster as answered."""
    return {
        "id": cluster.id,
        "name": cluster.name,
        "state": cluster.state,
        "targetState": cluster.target_state,
        "version": cluster.version,
        "nodeArrays": [
            {
                "name": array.name,
                "poolId": array.pool_id,
                "machineTypes": array.machine_types,
                "profile": array.profile_ref,
                "maxCount": array.max_count,
                "maxCoreCount": array.max_core_count,
                "shutdownPolicy": array.shutdown_policy,
                "subnetId": array.subnet_id,
                "attributes": array.attributes,
            }
            for array in arrays
            if array.cluster_id == cluster.id
        ],
        "nodes": [],
        "createdBy": cluster.created_by,
        "createdAt": moment(cluster.created_at),
    }


async def create_cluster(
    context: Context, session: AsyncSession, caller: Caller, body: CreateCluster
) -> dict[str, object]:
    """Makes a cluster of node arrays."""
    caller.authorize()
    if body.nodes:
        raise invalid(Detail("nodes", "fixed nodes are not served by this release; accepted: []"))
    cluster = await clusters.create_cluster(
        session,
        tenant_id=caller.tenant_id,
        actor=caller.name,
        name=body.name,
        arrays=[
            clusters.NewArray(
                name=array.name,
                pool_id=array.poolId,
                profile=array.profile,
                machine_types=array.machineTypes,
                max_count=array.maxCount,
                max_core_count=array.maxCoreCount,
                shutdown_policy=array.shutdownPolicy,
                subnet_id=array.subnetId,
                attributes=array.attributes,
            )
            for array in body.nodeArrays
        ],
    )
    return {"cluster": cluster_record(cluster, await clusters.arrays_of(session, [cluster.id]))}


async def get_cluster(
    context: Context, session: AsyncSession, caller: Caller, body: GetCluster
) -> dict[str, object]:
    """One cluster."""
    cluster = await clusters.find_cluster(session, caller.tenant_id, body.name)
    caller.authorize()
    return {"cluster": cluster_record(cluster, await clusters.arrays_of(session, [cluster.id]))}


async def list_clusters(
    context: Context, session: AsyncSession, caller: Caller, body: ListInput
) -> dict[str, object]:
    """The tenant's clusters by name."""
    caller.authorize()
    page = await clusters.list_clusters(session, caller.tenant_id, body.page())
    arrays = await clusters.arrays_of(session, [cluster.id for cluster in page.rows])
    return page_body(page, [cluster_record(cluster, arrays) for cluster in page.rows])


add_method(router, "clusters", "create", Permission.CLUSTERS_MANAGE, CreateCluster, create_cluster)
add_method(router, "clusters", "get", Permission.CLUSTERS_READ, GetCluster, get_cluster)
add_method(router, "clusters", "list", Permission.CLUSTERS_READ, ListInput, list_clusters)
