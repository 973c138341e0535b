"""Clusters and their node arrays: made, found, listed, locked."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from database.events import record_event
from database.machine_types import known_machine_types
from database.pages import Page, PageRequest, page_of
from database.profiles import find_version
from database.refusals import Detail, Refusal, RefusalCode, conflict, invalid, not_found
from database.tables import Authorization, Cluster, NodeArray, Pool
from database.visibility import Kind, sees, show_owned
from domain.ids import new_id
from profiles.problems import ProfileError
from profiles.references import ProfileRef

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")


@dataclass(frozen=True, slots=True)
class NewArray:
    """A node array as asked for; `machine_types` empty means every type of the pool."""

    name: str
    pool_id: str
    profile: str
    machine_types: Sequence[str] = ()
    max_count: int | None = None
    max_core_count: int | None = None
    shutdown_policy: str = "Terminate"
    subnet_id: str = ""
    attributes: Mapping[str, Any] | None = None


async def find_cluster(session: AsyncSession, tenant_id: str, name: str) -> Cluster:
    """The live cluster of that name; Refusal NOT_FOUND otherwise."""
    cluster = await session.scalar(
        select(Cluster).where(
            Cluster.tenant_id == tenant_id, Cluster.name == name, Cluster.state != "Terminated"
        )
    )
    if cluster is None:
        raise not_found(f"there is no cluster {name}")
    return cluster


async def lock_cluster(session: AsyncSession, cluster: Cluster) -> None:
    """Takes the cluster's row: the first lock of every change of its nodes.

    NO KEY UPDATE excludes other changes but not the key-share locks of rows that point at the cluster,
    which a claim of a request id has taken before.
    """
    await session.refresh(cluster, with_for_update={"key_share": True})
    if cluster.state != "Started":
        raise Refusal(RefusalCode.INVALID_STATE, f"cluster {cluster.name} is being deleted")


async def arrays_of(session: AsyncSession, cluster_ids: Sequence[str]) -> list[NodeArray]:
    """The arrays of these clusters, in listed order."""
    return list(
        await session.scalars(
            select(NodeArray)
            .where(NodeArray.cluster_id.in_(cluster_ids))
            .order_by(NodeArray.cluster_id, NodeArray.position)
        )
    )


async def list_clusters(session: AsyncSession, tenant_id: str, request: PageRequest) -> Page:
    """The tenant's live clusters by name."""
    query = select(Cluster).where(Cluster.tenant_id == tenant_id, Cluster.state != "Terminated")
    return await page_of(session, query, [Cluster.name], request)


async def create_cluster(
    session: AsyncSession, *, tenant_id: str, actor: str, name: str, arrays: Sequence[NewArray]
) -> Cluster:
    """Makes a cluster. Refuses an array whose pool, profile version or machine types are not there."""
    await _check_arrays(session, tenant_id, arrays)
    cluster_id = new_id("cluster")
    made: Cluster | None = await session.scalar(
        insert(Cluster)
        .values(id=cluster_id, tenant_id=tenant_id, name=name, created_by=actor)
        .on_conflict_do_nothing()
        .returning(Cluster)
    )
    if made is None:
        raise conflict(f"there is a cluster {name} already")
    for position, array in enumerate(arrays):
        session.add(
            NodeArray(
                id=new_id("array"),
                cluster_id=cluster_id,
                name=array.name,
                position=position,
                pool_id=array.pool_id,
                machine_types=list(array.machine_types),
                profile_ref=array.profile,
                max_count=array.max_count,
                max_core_count=array.max_core_count,
                shutdown_policy=array.shutdown_policy,
                subnet_id=array.subnet_id,
                attributes=dict(array.attributes or {}),
            )
        )
    await show_owned(session, tenant_id, Kind.CLUSTER, cluster_id, {"name": name})
    record_event(
        session,
        tenant_id=tenant_id,
        type="cluster.created",
        subject=f"cluster/{cluster_id}",
        actor=actor,
        name=name,
    )
    await session.flush()
    return made


async def _check_arrays(session: AsyncSession, tenant_id: str, arrays: Sequence[NewArray]) -> None:
    missing: list[Detail] = []
    wrong: list[Detail] = []
    for index, array in enumerate(arrays):
        at = f"nodeArrays[{index}]"
        pool = await session.scalar(
            select(Pool)
            .join(Authorization, sees(tenant_id, Kind.POOL, Pool.id))
            .where(Pool.id == array.pool_id)
        )
        if pool is None:
            missing.append(Detail(f"{at}.poolId", f"there is no pool {array.pool_id}"))
            continue
        if pool.archived_at is not None:
            wrong.append(Detail(f"{at}.poolId", f"pool {array.pool_id} is archived"))
        try:
            if await find_version(session, tenant_id, ProfileRef.parse(array.profile)) is None:
                missing.append(Detail(f"{at}.profile", f"there is no profile version {array.profile}"))
        except ProfileError as error:
            wrong.append(Detail(f"{at}.profile", error.problems[0].message))
        known = await known_machine_types(session, pool.tenant_id)
        wrong += [
            Detail(
                f"{at}.machineTypes[{place}]",
                f"there is no machine type {name}; there are: {', '.join(sorted(known)) or 'none'}",
            )
            for place, name in enumerate(array.machine_types)
            if name not in known
        ]
    for problems, code in ((missing, RefusalCode.NOT_FOUND), (wrong, RefusalCode.INVALID_INPUT)):
        if problems:
            raise Refusal(code, "; ".join(f"{p.path}: {p.message}" for p in problems), details=problems)
    names = [array.name for array in arrays]
    twice = [
        Detail(f"nodeArrays[{index}].name", f"{name} is the name of an earlier array too")
        for index, name in enumerate(names)
        if name in names[:index]
    ]
    if twice:
        raise invalid(*twice)
