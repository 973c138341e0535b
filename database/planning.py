"""Which machines and names the sets of one create get: limits in, placements out. No I/O."""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from database.capacity import Allowance, FreeMachine, Supply
from database.machine_types import PoolTypes
from database.naming import FreeNames, NameFormat
from database.tables import NodeArray, Pool
from domain.failures import FailureClass

# Without a limit of its own, what an array lets into one placement group.
PLACEMENT_GROUP_SIZE = 100


@dataclass(frozen=True, slots=True)
class NodeSet:
    """One set of a create, checked; `attributes` are merged over the array's already."""

    array: NodeArray
    count: int
    machine_type: str | None
    format: NameFormat
    offset: int
    attributes: Mapping[str, Any]
    placement_group: str | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """One node to be made on one machine."""

    name: str
    machine: FreeMachine
    node_set: NodeSet


@dataclass(slots=True)
class SetResult:
    """How many nodes a set got; `message` names the limit that bound when these are fewer than asked for."""

    added: int
    message: str = ""
    failure: FailureClass | None = None
    machine_type: str | None = None


@dataclass(slots=True)
class Usage:
    """Nodes of one array that count against its limits."""

    count: int = 0
    cores: int = 0
    groups: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))


@dataclass(frozen=True, slots=True)
class _Limit:
    room: int
    says: str
    failure: FailureClass


def placement_group_size(array: NodeArray) -> int:
    """The array's `Azure.MaxScalesetSize`, else 100."""
    azure = array.attributes.get("Azure")
    size = azure.get("MaxScalesetSize") if isinstance(azure, dict) else None
    return size if type(size) is int and size > 0 else PLACEMENT_GROUP_SIZE


def types_of(array: NodeArray, in_pool: Sequence[str]) -> list[str]:
    """The machine types of an array's buckets in listed order: its own, or all of the pool by name."""
    return list(array.machine_types) or sorted(in_pool)


class Planner:
    """Serves sets in request order from what is free; every placement lowers all limits at once."""

    def __init__(
        self,
        *,
        machines: Sequence[FreeMachine],
        supplies: Mapping[tuple[str, str], Supply],
        pools: Mapping[str, Pool],
        allowances: Mapping[str, Allowance],
        types: PoolTypes,
        usage: Mapping[str, Usage],
        names: FreeNames,
    ) -> None:
        self._free: dict[tuple[str, str], deque[FreeMachine]] = defaultdict(deque)
        for machine in machines:
            self._free[machine.pool_id, machine.machine_type].append(machine)
        self._supplies = supplies
        self._pools = pools
        self._allowances = allowances
        self._types = types
        self._usage = usage
        self._names = names
        self.placements: list[Placement] = []

    def bucket_types(self, array: NodeArray) -> list[str]:
        """The machine types that the array's nodes may have."""
        return types_of(array, [kind for pool, kind in self._supplies if pool == array.pool_id])

    def serve(self, asked: NodeSet) -> SetResult:
        """Places what fits of one set, all on one machine type."""
        candidates = [asked.machine_type] if asked.machine_type else self.bucket_types(asked.array)
        if not candidates:
            return SetResult(
                0,
                f"added 0 of {asked.count}: pool {asked.array.pool_id} has no machines",
                FailureClass.CAPACITY,
            )
        bound = {kind: min(self._limits(asked, kind), key=lambda limit: limit.room) for kind in candidates}
        kind = next(
            (kind for kind in candidates if bound[kind].room >= asked.count),
            max(candidates, key=lambda kind: bound[kind].room),
        )
        limit = bound[kind]
        names = self._names.take(asked.format, asked.offset, min(asked.count, limit.room))
        self._place(asked, kind, names)
        if len(names) == asked.count:
            return SetResult(len(names), machine_type=kind)
        says, failure = limit.says, limit.failure
        if len(names) < min(asked.count, limit.room):
            says, failure = self._name_limit(asked), FailureClass.VALIDATION
        return SetResult(len(names), f"added {len(names)} of {asked.count}: {says}", failure, kind)

    @staticmethod
    def _name_limit(asked: NodeSet) -> str:
        if asked.format.literal:
            return f"nameFormat {asked.format.key} holds no %d, so it names one node, which may exist already"
        return f"nameFormat {asked.format.key} makes no more names of at most 63 characters"

    def _place(self, asked: NodeSet, kind: str, names: Sequence[str]) -> None:
        free = self._free[asked.array.pool_id, kind]
        usage = self._usage[asked.array.id]
        for name in names:
            machine = free.popleft()
            self._allowances[asked.array.pool_id].take(machine.gpus, 1)
            self.placements.append(Placement(name, machine, asked))
        usage.count += len(names)
        usage.cores += len(names) * self._types[asked.array.pool_id, kind].vcpu
        if asked.placement_group:
            usage.groups[kind, asked.placement_group] += len(names)

    def _limits(self, asked: NodeSet, kind: str) -> list[_Limit]:
        array, pool = asked.array, self._pools[asked.array.pool_id]
        usage, supply = self._usage[array.id], self._supplies.get((pool.id, kind), Supply())
        free = 0 if pool.archived_at else len(self._free[pool.id, kind])
        says = (
            f"pool {pool.id} is archived"
            if pool.archived_at
            else f"pool {pool.id} had {free} free machines of type {kind} "
            f"({supply.total} in service, {supply.booked} booked)"
        )
        limits = [_Limit(free, says, FailureClass.CAPACITY)]
        if array.max_count is not None:
            limits.append(
                _Limit(
                    max(0, array.max_count - usage.count),
                    f"nodearray {array.name} allows {array.max_count} nodes, {usage.count} were in use",
                    FailureClass.QUOTA,
                )
            )
        if array.max_core_count is not None:
            limits.append(
                _Limit(
                    max(0, array.max_core_count - usage.cores) // self._types[pool.id, kind].vcpu,
                    f"nodearray {array.name} allows {array.max_core_count} cores, {usage.cores} were in use",
                    FailureClass.QUOTA,
                )
            )
        if asked.placement_group:
            size, held = placement_group_size(array), usage.groups[kind, asked.placement_group]
            limits.append(
                _Limit(
                    max(0, size - held),
                    f"placement group {asked.placement_group} holds {size} nodes, {held} were in it",
                    FailureClass.CAPACITY,
                )
            )
        return [*limits, *self._quota_limit(pool, kind)]

    def _quota_limit(self, pool: Pool, kind: str) -> list[_Limit]:
        gpus = self._types[pool.id, kind].gpu_count
        allowance = self._allowances[pool.id]
        left = allowance.left(gpus)
        if left is None:
            return []
        resource, each = Allowance.price(gpus)
        return [
            _Limit(
                left,
                f"the quota for {resource} in pool {pool.id} is {allowance.maximum(resource)}, "
                f"{allowance.used(resource)} were in use, and a {kind} takes {each}",
                FailureClass.QUOTA,
            )
        ]
