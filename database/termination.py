"""The terminate: raises generations, flips targets, and puts one run in for each node that it concerns."""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import func, insert, update
from sqlalchemy.ext.asyncio import AsyncSession

from database.clusters import lock_cluster
from database.matching import one_of
from database.nodes import Selection, lock_selected
from database.operations import NewRun, claim_request_id, submit_operation
from database.tables import Cluster, Event, Node
from domain.states import NODE_PASSING, NodeStatus, TargetState, check_node_transition

KEPT_ALIVE = (
    "this node has KeepAlive set and is not terminated; no call of this release lifts it, so whoever runs "
    "the service must clear keep_alive on the node first"
)


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What became of one selected node; `error` is empty when it is OK."""

    id: uuid.UUID
    name: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Termination:
    """What a terminate did."""

    operation_id: uuid.UUID
    nodes: list[NodeAnswer]


async def terminate_nodes(
    session: AsyncSession,
    *,
    tenant_id: str,
    actor: str,
    cluster: Cluster,
    wanted: Selection,
    request_id: str | None = None,
) -> Termination:
    """Terminates the selected nodes. One that is terminating or terminated is OK and gets no second run."""
    operation_id = uuid.uuid4()
    if request_id is not None:
        await claim_request_id(
            session,
            operation_id=operation_id,
            tenant_id=tenant_id,
            request_id=request_id,
            action="terminate",
            actor=actor,
            cluster_id=cluster.id,
        )
    await lock_cluster(session, cluster)
    nodes = await lock_selected(session, cluster.id, wanted)
    affected = [
        node
        for node in nodes
        if not node.keep_alive and node.status not in (NodeStatus.TERMINATING, NodeStatus.TERMINATED)
    ]
    runs = await _begin(session, tenant_id, actor, operation_id, affected)
    refused = sum(node.keep_alive for node in nodes)
    await submit_operation(
        session,
        operation_id=operation_id,
        tenant_id=tenant_id,
        action="terminate",
        actor=actor,
        runs=runs,
        request_id=request_id,
        cluster_id=cluster.id,
        message=f"{refused} nodes with KeepAlive were left alone" if refused else "",
    )
    return Termination(
        operation_id,
        [NodeAnswer(node.id, node.name, KEPT_ALIVE if node.keep_alive else "") for node in nodes],
    )


async def _begin(
    session: AsyncSession, tenant_id: str, actor: str, operation_id: uuid.UUID, affected: list[Node]
) -> list[NewRun]:
    if not affected:
        return []
    for node in affected:
        check_node_transition(NodeStatus(node.status), NodeStatus.TERMINATING)
    now = datetime.now(UTC)
    changed = await session.execute(
        update(Node)
        .where(one_of(Node.id, [node.id for node in affected]))
        .values(
            generation=Node.generation + 1,
            status=NodeStatus.TERMINATING,
            target_state=TargetState.TERMINATED,
            status_since=now,
            status_deadline=now + NODE_PASSING[NodeStatus.TERMINATING].deadline,
            message=f"terminating, as asked for by {actor}",
            updated_at=func.now(),
        )
        .returning(Node.id, Node.name, Node.generation)
        .execution_options(synchronize_session=False)
    )
    rows = sorted(changed.all(), key=lambda row: row.id)
    await session.execute(
        insert(Event),
        [
            {
                "tenant_id": tenant_id,
                "type": "node.terminating",
                "subject": f"node/{row.id}",
                "actor": actor,
                "data": {"name": row.name, "operation": str(operation_id), "generation": row.generation},
            }
            for row in rows
        ],
    )
    return [NewRun(name=row.name, generation=row.generation, node_id=row.id) for row in rows]
