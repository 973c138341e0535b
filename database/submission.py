"""The create: one transaction that claims, locks, plans, books and writes everything that will be run.

Locks are taken in one order everywhere: request id, cluster, pools, quota rows, atoms, nodes.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncSession

from database.bookings import book_machines
from database.buckets import record_shortage
from database.capacity import Allowance, free_machines, supplies_of
from database.clusters import arrays_of, lock_cluster
from database.machine_types import types_of_pools
from database.naming import FreeNames
from database.nodes import count_nodes, taken_names, usage_of
from database.operations import NewRun, claim_request_id, submit_operation
from database.planning import NodeSet, Placement, Planner, SetResult, Usage
from database.pools import lock_pools
from database.profiles import freeze_version
from database.quotas import quota_tenants, quotas_of, raise_use
from database.set_requests import SetRequest, check_types, resolve_sets
from database.tables import Cluster, Event, Node, Pool
from domain.failures import FailureCard, FailureClass, failure_card
from domain.states import NODE_PASSING, NodeStatus, TargetState
from profiles.references import ProfileRef


@dataclass(frozen=True, slots=True)
class Creation:
    """What a create did."""

    operation_id: uuid.UUID
    sets: list[SetResult]


async def create_nodes(
    session: AsyncSession,
    *,
    tenant_id: str,
    actor: str,
    cluster: Cluster,
    sets: Sequence[SetRequest],
    request_id: str | None = None,
) -> Creation:
    """Adds nodes to a cluster; refuses the whole request when one set makes no sense.

    Sets that do not fit get what does, with a message. When nothing fits at all the operation has failed.
    """
    operation_id = uuid.uuid4()
    if request_id is not None:
        await claim_request_id(
            session,
            operation_id=operation_id,
            tenant_id=tenant_id,
            request_id=request_id,
            action="create",
            actor=actor,
            cluster_id=cluster.id,
        )
    await lock_cluster(session, cluster)
    arrays = {array.name: array for array in await arrays_of(session, [cluster.id])}
    resolved = resolve_sets(sets, arrays)
    pools = await lock_pools(session, sorted({asked.array.pool_id for asked in resolved}))
    planner, allowances = await _planner(session, tenant_id, cluster, pools)
    check_types(resolved, planner)
    results = [planner.serve(asked) for asked in resolved]
    runs = await _write_nodes(
        session, tenant_id, actor, cluster, operation_id, planner.placements, allowances
    )
    _record_shortages(session, tenant_id, actor, resolved, results)
    await submit_operation(
        session,
        operation_id=operation_id,
        tenant_id=tenant_id,
        action="create",
        actor=actor,
        runs=runs,
        request_id=request_id,
        cluster_id=cluster.id,
        message="; ".join(dict.fromkeys(result.message for result in results if result.message))[:2_000],
        card=None if runs else _nothing_added(results),
    )
    return Creation(operation_id, results)


async def _planner(
    session: AsyncSession, tenant_id: str, cluster: Cluster, pools: Mapping[str, Pool]
) -> tuple[Planner, dict[str, Allowance]]:
    quotas = await quotas_of(session, tenant_id, list(pools), lock=True)
    allowances = {
        pool.id: Allowance(
            [row for row in quotas if row.pool_id == pool.id], owner=pool.tenant_id == tenant_id
        )
        for pool in pools.values()
    }
    arrays = await arrays_of(session, [cluster.id])
    types = await types_of_pools(session, sorted({array.pool_id for array in arrays}))
    usage = usage_of(await count_nodes(session, cluster.id), arrays, types)
    for array in arrays:
        usage.setdefault(array.id, Usage())
    planner = Planner(
        machines=await free_machines(session, list(pools)),
        supplies=await supplies_of(session, list(pools)),
        pools=pools,
        allowances=allowances,
        types=types,
        usage=usage,
        names=FreeNames(await taken_names(session, cluster.id)),
    )
    return planner, allowances


async def _write_nodes(
    session: AsyncSession,
    tenant_id: str,
    actor: str,
    cluster: Cluster,
    operation_id: uuid.UUID,
    placements: Sequence[Placement],
    allowances: Mapping[str, Allowance],
) -> list[NewRun]:
    if not placements:
        return []
    references = sorted({placed.node_set.array.profile_ref for placed in placements})
    digests = {
        reference: await freeze_version(session, tenant_id, ProfileRef.parse(reference))
        for reference in references
    }
    payers = await quota_tenants(session, tenant_id, list(allowances))
    machines = [placed.machine for placed in placements]
    reservations = await book_machines(
        session, tenant_id, [(machine.id, machine.pool_id, payers[machine.pool_id]) for machine in machines]
    )
    for pool_id, allowance in sorted(allowances.items()):
        if allowance.taken:
            await raise_use(session, payers[pool_id], pool_id, allowance.taken)
    now = datetime.now(UTC)
    rows = [
        _node_row(tenant_id, cluster, placed, reservation, digests, now)
        for placed, reservation in zip(placements, reservations, strict=True)
    ]
    await session.execute(insert(Node), rows)
    await session.execute(
        insert(Event),
        [
            {
                "tenant_id": tenant_id,
                "type": "node.created",
                "subject": f"node/{row['id']}",
                "actor": actor,
                "data": {
                    "name": row["name"],
                    "operation": str(operation_id),
                    "machine": row["machine_id"],
                },
            }
            for row in rows
        ],
    )
    return [NewRun(name=row["name"], generation=1, node_id=row["id"]) for row in rows]


def _node_row(
    tenant_id: str,
    cluster: Cluster,
    placed: Placement,
    reservation: str,
    digests: Mapping[str, str],
    now: datetime,
) -> dict[str, Any]:
    asked = placed.node_set
    return {
        "id": uuid.uuid4(),
        "tenant_id": tenant_id,
        "cluster_id": cluster.id,
        "node_array_id": asked.array.id,
        "name": placed.name,
        "status": NodeStatus.ACQUIRING,
        "target_state": TargetState.STARTED,
        "status_since": now,
        "status_deadline": now + NODE_PASSING[NodeStatus.ACQUIRING].deadline,
        "message": "waiting for its machine",
        "generation": 1,
        "machine_type": placed.machine.machine_type,
        "machine_id": placed.machine.id,
        "reservation_id": reservation,
        "profile_ref": asked.array.profile_ref,
        "profile_digest": digests[asked.array.profile_ref],
        "placement_group_id": asked.placement_group,
        "keep_alive": asked.attributes.get("KeepAlive") is True,
        "fixed": asked.attributes.get("Fixed") is True,
        "shutdown_policy": asked.attributes.get("ShutdownPolicy", asked.array.shutdown_policy),
        "attributes": dict(asked.attributes),
    }


def _nothing_added(results: Sequence[SetResult]) -> FailureCard:
    first = next((result for result in results if result.failure), None)
    return failure_card(
        (first and first.failure) or FailureClass.CAPACITY,
        "no node was added: " + (first.message if first else "none was asked for"),
        seen=datetime.now(UTC),
    )


def _record_shortages(
    session: AsyncSession,
    tenant_id: str,
    actor: str,
    sets: Sequence[NodeSet],
    results: Sequence[SetResult],
) -> None:
    short = {
        (asked.array.id, result.machine_type): result.message
        for asked, result in zip(sets, results, strict=True)
        if result.failure is FailureClass.CAPACITY and result.machine_type
    }
    for (array_id, machine_type), message in short.items():
        record_shortage(session, tenant_id, actor, array_id, machine_type, message)
