"""bringup itself, all of it: from sending the request for N nodes until the operation has ended.

The services run already, as they would; the machines are waited for, planned, and named besides the ten
steps. The operation says itself when it ended; it is asked as often as `bringup ... --wait` asks, for more
would only load the API. Afterwards every node must be Ready, every step of every node must be on record as
one that changed something, and one node's workflow history must name all ten.
"""

import asyncio
import importlib.metadata
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from bench.fanout.errors import BenchError
from bench.fanout.recipe import NAMES, profile_steps
from bench.hosts import Host
from bench.processor import Usage
from bench.stack import BenchStack
from domain.workflow_ids import run_workflow_id
from tests.fixtures.dev_stack import Cluster, eventually

_SECONDS = 900.0
_PAGE = 500
_POLL = 0.3


class Bringup:
    """See the module. The machines of one size of fan-out are a pool with a cluster of its own."""

    name = "bringup"
    version = importlib.metadata.version("bringup")

    def __init__(self, stack: BenchStack) -> None:
        self._stack = stack
        self._clusters: dict[int, Cluster] = {}
        self._count = 0
        self._sent_at = 0.0
        self._accepted_after = 0.0
        self._operation: dict[str, Any] = {}
        self._steps: list[dict[str, Any]] = []

    def prepare(self, hosts: Sequence[Host]) -> None:
        self._count = len(hosts)
        if self._count not in self._clusters:
            pool = self._pool({host.address for host in hosts})
            self._clusters[self._count] = Cluster(self._stack, profile_steps()).make(pool)

    def _pool(self, addresses: set[str]) -> str:
        made = self._stack.fleet("pools/create", siteId=self._stack.ready["site"], **{"class": "metal-host"})
        pool: str = made["pool"]["id"]
        machines = [one["id"] for one in self._machines() if one["address"] in addresses]
        self._stack.fleet("nodes/assignPool", poolId=pool, nodeIds=machines)
        return pool

    def apply(self) -> float:
        cluster = self._clusters[self._count]
        self._sent_at = time.time()
        answer = cluster.create(self._count)
        self._accepted_after = time.time() - self._sent_at
        if answer.status_code != 202:
            raise BenchError(f"the create was answered with {answer.status_code}: {answer.text}")
        self._operation = self._ended(answer.json()["operationId"])
        return _moment(self._operation["endTime"]) - self._sent_at

    def _ended(self, operation_id: str) -> dict[str, Any]:
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until:
            answer = self._stack.http.get(f"/operations/{operation_id}")
            operation: dict[str, Any] = answer.json()
            if answer.status_code == 200 and operation["endTime"]:
                return operation
            time.sleep(_POLL)
        raise BenchError(f"operation {operation_id} has not ended within {_SECONDS:.0f} s")

    def check(self) -> None:
        """Every node Ready, every step recorded and named; not part of the time."""
        cluster, operation = self._clusters[self._count], self._operation
        failed = [one for one in operation["progress"] if one["state"] != "succeeded"]
        if operation["state"] != "succeeded" or len(operation["progress"]) != self._count:
            said = "; ".join(f"{one['name']}: {one['message']}" for one in failed[:5])
            raise BenchError(f"bringup: the operation ended as {operation['state']}: {said}")
        nodes = cluster.nodes()
        if [node["Status"] for node in nodes] != ["Ready"] * self._count:
            raise BenchError(f"bringup: not every node is Ready: {[node['Status'] for node in nodes]}")
        self._steps = self._recorded_steps(operation["id"])
        # The platform's own steps, such as the one that names the machine, are on record beside them.
        recipe = [one for one in self._steps if one["step"] in NAMES]
        changed = sorted((one["name"], one["step"]) for one in recipe if one["outcome"] == "changed")
        if changed != sorted((node["Name"], step) for node in nodes for step in NAMES):
            raise BenchError(f"bringup: {len(changed)} steps are recorded as changed, not ten of each node")
        asyncio.run(self._check_history(nodes[0]["NodeId"]))

    async def _check_history(self, node_id: str) -> None:
        client = await Client.connect(self._stack.ready["temporal"])
        handle = client.get_workflow_handle(run_workflow_id("node", node_id))
        # What is scheduled carries its input and the summary that people see; results do not count.
        scheduled = [
            event.SerializeToString()
            async for event in handle.fetch_history_events()
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
        ]
        unnamed = [name for name in NAMES if not any(name.encode() in event for event in scheduled)]
        if unnamed:
            raise BenchError(f"bringup: the history of node {node_id} does not name {', '.join(unnamed)}")

    def own_seconds(self, used: Usage) -> float:
        return sum(used.roles.values())

    def details(self) -> dict[str, float]:
        """When what happened, in seconds since the request was sent."""
        since = [_moment(one["startTime"]) - self._sent_at for one in self._steps]
        until = [_moment(one["endTime"]) - self._sent_at for one in self._steps]
        return {
            "answered 202": self._accepted_after,
            "first step began": min(since),
            "last step ended": max(until),
            "operation ended": _moment(self._operation["endTime"]) - self._sent_at,
        }

    def undo(self, hosts: Sequence[Host]) -> None:
        """Terminates the nodes; returns once every machine has been cleaned, with an empty disk."""
        cluster = self._clusters[self._count]
        answer = cluster.terminate(*(node["Name"] for node in cluster.nodes()))
        if answer.status_code != 202:
            raise BenchError(f"the terminate was answered with {answer.status_code}: {answer.text}")
        operation = self._ended(answer.json()["operationId"])
        if operation["state"] != "succeeded":
            raise BenchError(f"the terminate ended as {operation['state']}")
        eventually("every machine is ready again", self._all_ready, _SECONDS)

    def _all_ready(self) -> bool:
        return all(one["state"] == "ready" for one in self._machines())

    def _machines(self) -> list[dict[str, Any]]:
        return list(self._stack.fleet("nodes/list", limit=_PAGE)["items"])

    def _recorded_steps(self, operation_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            page = self._stack.fleet("operations/steps", operationId=operation_id, limit=_PAGE, **cursor)
            found += page["items"]
            if page["nextCursor"] is None:
                return found
            cursor = {"cursor": page["nextCursor"]}


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
