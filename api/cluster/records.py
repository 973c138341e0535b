"""Records in the clients' words: a node in PascalCase, an operation in camelCase."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from api.addresses import workflow_id, workflow_url
from database.operation_queries import Progress
from database.tables import MachineType, NodeArray, Operation
from domain.failures import FailureCard
from domain.states import NODE_STATE, NodeStatus


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
        types: Mapping[str, MachineType],
        regions: Mapping[str, str],
    ) -> None:
        self._cluster = cluster
        self._arrays = {array.id: array for array in arrays}
        self._types = types
        self._regions = regions

    def record(self, row: Any) -> dict[str, Any]:
        """The record of a row of `nodes`. Attributes of array and request come first, facts over them."""
        array = self._arrays.get(row.node_array_id)
        kind = self._types.get(row.machine_type)
        message = card_text(row.card) if row.card and row.status == NodeStatus.FAILED else row.message
        record: dict[str, Any] = {
            "Configuration": {},
            "Interruptible": False,
            **row.attributes,
            "Name": row.name,
            "NodeId": str(row.id),
            "ClusterName": self._cluster,
            "Template": array.name if array else row.name,
            "MachineType": row.machine_type,
            "State": NODE_STATE[NodeStatus(row.status)],
            "Status": row.status,
            "TargetState": row.target_state,
            "StatusMessage": message,
            "PrivateIp": row.private_ip,
            "Hostname": row.hostname,
            "InstanceId": row.instance_id,
            "KeepAlive": row.keep_alive,
            "Fixed": row.fixed,
            "ShutdownPolicy": row.shutdown_policy,
            "StartAutomatically": True,
            "IsArray": False,
            "Abstract": False,
            "CoreCount": kind.vcpu if kind else 0,
            "Memory": kind.memory_gb if kind else 0,
            "Region": self._regions.get(array.pool_id, "") if array else "",
            "SubnetId": array.subnet_id if array else "",
            "ProfileRef": row.profile_ref,
            "UpdatedAt": {"$date": row.updated_at.astimezone(UTC).isoformat()},
        }
        if array:
            record["NodeArray"] = array.name
        # Clients take any value of this key, null included, for a group's name.
        record.pop("PlacementGroupId", None)
        if row.placement_group_id:
            record["PlacementGroupId"] = row.placement_group_id
        if row.instance_id is None:
            # Its presence says that a machine exists.
            del record["InstanceId"]
        return record


def operation_record(
    operation: Operation, counts: Mapping[str, int], ui: str, progress: Sequence[Progress] | None = None
) -> dict[str, Any]:
    """An OperationStatus: what the clients know, then what they drop."""
    record: dict[str, Any] = {
        "action": operation.action,
        "startTime": moment(operation.created_at),
        "id": str(operation.id),
        "state": operation.state,
        "message": operation.message,
        "card": operation.card,
        "counts": dict(counts),
        "requestId": operation.request_id,
        "createdBy": operation.created_by,
        "endTime": moment(operation.ended_at),
        "workflowId": workflow_id(operation.id),
        "workflowUrl": workflow_url(ui, operation.id),
    }
    if progress is not None:
        record["progress"] = [
            {
                "name": run.name,
                "nodeId": run.subject,
                "state": run.state,
                "step": run.step,
                "message": card_text(run.card),
                "card": run.card,
                "startTime": moment(run.started_at),
                "endTime": moment(run.ended_at),
            }
            for run in progress
        ]
    return record
