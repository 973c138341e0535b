"""Records of nodes in the clients' words, and how moments and failures are written in any record."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from database.machine_types import PoolTypes
from database.nodes import NodeRow
from database.tables import NodeArray
from domain.failures import FailureCard
from domain.states import NODE_STATE, NodeStatus

_STATES: dict[str, str] = {str(status): state for status, state in NODE_STATE.items()}


def moment(value: datetime | None) -> str | None:
    """ISO 8601 in UTC with a Z."""
    return None if value is None else value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def card_text(card: Mapping[str, Any] | None) -> str | None:
    """A stored failure card on one line."""
    return None if card is None else FailureCard.model_validate(card).text().replace("\n", " ")


class NodeRecords:
    """Makes node records of one cluster; holds what all of them share."""

    def __init__(
        self,
        cluster: str,
        arrays: Sequence[NodeArray],
        types: PoolTypes,
        regions: Mapping[str, str],
    ) -> None:
        self._cluster = cluster
        self._arrays = {array.id: array for array in arrays}
        self._types = types
        self._regions = regions
        self._bases: dict[tuple[str | None, str, str], dict[str, Any]] = {}

    def _base(self, row: NodeRow) -> dict[str, Any]:
        """What nodes of one array, type and attributes share; made once for all of them."""
        key = (row.node_array_id, row.machine_type, row.attributes)
        base = self._bases.get(key)
        if base is None:
            array = self._arrays.get(row.node_array_id or "")
            kind = self._types.get((array.pool_id, row.machine_type)) if array else None
            base = {
                "Configuration": {},
                "Interruptible": False,
                **json.loads(row.attributes),
                "ClusterName": self._cluster,
                "MachineType": row.machine_type,
                "StartAutomatically": True,
                "IsArray": False,
                "Abstract": False,
                "CoreCount": kind.vcpu if kind else 0,
                "Memory": kind.memory_gb if kind else 0,
                "Region": self._regions.get(array.pool_id, "") if array else "",
                "SubnetId": array.subnet_id if array else "",
            }
            if array:
                base["Template"] = base["NodeArray"] = array.name
            # Clients take any value of these keys, null included, for a group's name and for a machine.
            base.pop("PlacementGroupId", None)
            base.pop("InstanceId", None)
            self._bases[key] = base
        return base

    def record(self, row: NodeRow) -> dict[str, Any]:
        """The record of a node. Attributes of array and request come first, facts over them."""
        failed = row.card is not None and row.status in (NodeStatus.FAILED, NodeStatus.UNAVAILABLE)
        record = {
            **self._base(row),
            "Name": row.name,
            "NodeId": str(row.id),
            "State": _STATES[row.status],
            "Status": row.status,
            "TargetState": row.target_state,
            "StatusMessage": card_text(row.card) if failed else row.waiting or row.message,
            "PrivateIp": row.private_ip,
            "Hostname": row.hostname,
            "KeepAlive": row.keep_alive,
            "Fixed": row.fixed,
            "ShutdownPolicy": row.shutdown_policy,
            "ProfileRef": row.profile_ref,
            "UpdatedAt": {"$date": row.updated_at.isoformat()},
        }
        if row.node_array_id is None:
            record["Template"] = row.name
        if row.placement_group_id:
            record["PlacementGroupId"] = row.placement_group_id
        if row.instance_id is not None:
            record["InstanceId"] = row.instance_id
        return record
