"""Cluster nodes as they are read: lists, counts, and the nodes that a request selects."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Text, cast, exists, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from database.machine_types import PoolTypes
from database.matching import one_of
from database.planning import Usage
from database.tables import Node, NodeArray, Run
from database.waiting import waiting_of_node
from domain.states import NodeStatus

# These hold no machine.
AT_REST = (NodeStatus.OFF, NodeStatus.DEALLOCATED, NodeStatus.TERMINATED)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which nodes are meant: the union of all selectors."""

    ids: Sequence[str] = ()
    names: Sequence[str] = ()
    hostnames: Sequence[str] = ()
    ip_addresses: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class NodeCount:
    """How many live nodes of one kind there are."""

    node_array_id: str | None
    machine_type: str
    placement_group: str | None
    status: str
    count: int


class NodeRow(NamedTuple):
    """What a node's record is made from. `attributes` is JSON text: most nodes have the same."""

    id: uuid.UUID
    name: str
    node_array_id: str | None
    machine_type: str
    status: str
    target_state: str
    message: str
    card: dict[str, Any] | None
    hostname: str | None
    private_ip: str | None
    instance_id: str | None
    placement_group_id: str | None
    keep_alive: bool
    fixed: bool
    shutdown_policy: str
    profile_ref: str
    updated_at: datetime
    attributes: str
    # What its run waits for.
    waiting: str | None


_MADE: dict[str, ColumnElement[Any]] = {
    "attributes": cast(Node.attributes, Text),
    "waiting": waiting_of_node(),
}
_COLUMNS = [_MADE[name].label(name) if name in _MADE else getattr(Node, name) for name in NodeRow._fields]


async def nodes_of_cluster(
    session: AsyncSession, cluster_id: str, *, operation_id: uuid.UUID | None = None
) -> list[NodeRow]:
    """Every node of a cluster that still holds its name, oldest first, or those of one operation."""
    query = (
        select(*_COLUMNS)
        .where(Node.cluster_id == cluster_id, Node.removed_at.is_(None))
        .order_by(Node.created_at, Node.name)
    )
    if operation_id is not None:
        query = query.where(exists().where(Run.operation_id == operation_id, Run.node_id == Node.id))
    return [NodeRow(*row) for row in await session.execute(query)]


async def count_nodes(session: AsyncSession, cluster_id: str) -> list[NodeCount]:
    """Live nodes by array, machine type, placement group and status."""
    rows = await session.execute(
        select(Node.node_array_id, Node.machine_type, Node.placement_group_id, Node.status, func.count())
        .where(Node.cluster_id == cluster_id, Node.removed_at.is_(None))
        .group_by(Node.node_array_id, Node.machine_type, Node.placement_group_id, Node.status)
    )
    return [NodeCount(*row) for row in rows]


def usage_of(counts: Sequence[NodeCount], arrays: Sequence[NodeArray], types: PoolTypes) -> dict[str, Usage]:
    """What counts against each array's limits; a terminating node counts until its machine is given up."""
    pools = {array.id: array.pool_id for array in arrays}
    usage: dict[str, Usage] = {}
    for row in counts:
        if row.node_array_id is None or row.status in AT_REST:
            continue
        mine = usage.setdefault(row.node_array_id, Usage())
        mine.count += row.count
        mine.cores += row.count * types[pools[row.node_array_id], row.machine_type].vcpu
        if row.placement_group:
            mine.groups[row.machine_type, row.placement_group] += row.count
    return usage


async def taken_names(session: AsyncSession, cluster_id: str) -> set[str]:
    """The names that live nodes hold."""
    rows = await session.scalars(
        select(Node.name).where(Node.cluster_id == cluster_id, Node.removed_at.is_(None))
    )
    return set(rows)


def _uuids(texts: Sequence[str]) -> list[uuid.UUID]:
    """Those that are ids at all: an unknown id is no error, and neither is one of another form."""
    found = []
    for text in texts:
        try:
            found.append(uuid.UUID(text))
        except ValueError:
            continue
    return found


async def lock_selected(session: AsyncSession, cluster_id: str, wanted: Selection) -> list[Node]:
    """The live nodes that are meant, each once, locked by id. Unknown ones are left out."""
    hostnames = [name.lower() for name in wanted.hostnames]
    choices: list[ColumnElement[bool]] = []
    if wanted.ids:
        choices.append(one_of(Node.id, _uuids(wanted.ids)))
    if wanted.names:
        choices.append(one_of(Node.name, wanted.names))
    if hostnames:
        full = func.lower(Node.hostname, type_=Text)
        choices += [one_of(full, hostnames), one_of(func.split_part(full, ".", 1, type_=Text), hostnames)]
    if wanted.ip_addresses:
        choices.append(one_of(Node.private_ip, wanted.ip_addresses))
    if not choices:
        return []
    return list(
        await session.scalars(
            select(Node)
            .where(Node.cluster_id == cluster_id, Node.removed_at.is_(None), or_(*choices))
            .order_by(Node.id)
            .with_for_update()
            .execution_options(populate_existing=True)
        )
    )
