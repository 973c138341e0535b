"""Bucket arithmetic: the smallest of all limits, and what is in use, for each array and machine type."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from database.buckets import bucket_id
from database.capacity import Allowance, Supply
from database.machine_types import PoolTypes
from database.nodes import AT_REST, NodeCount, NodeRow, usage_of
from database.planning import Usage, placement_group_size, types_of
from database.tables import MachineType, NodeArray, Pool

# What clients get where there is no limit: they need a number.
NO_LIMIT = 2_147_483_647


class ClusterView:
    """All that the status of one cluster is computed from; no I/O."""

    def __init__(
        self,
        *,
        arrays: Sequence[NodeArray],
        pools: Mapping[str, Pool],
        regions: Mapping[str, str],
        types: PoolTypes,
        supplies: Mapping[tuple[str, str], Supply],
        counts: Sequence[NodeCount],
        allowances: Mapping[str, Allowance],
        nodes: Sequence[NodeRow] | None,
        now: datetime,
    ) -> None:
        self._arrays, self._pools, self._regions = arrays, pools, regions
        self._types, self._supplies, self._allowances = types, supplies, allowances
        self._now = now
        self.shortages: Mapping[str, datetime] = {}
        self._usage = usage_of(counts, arrays, types)
        self._active: dict[tuple[str, str], int] = defaultdict(int)
        self._groups: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for count in counts:
            if count.node_array_id is None:
                continue
            key = (count.node_array_id, count.machine_type)
            active = 0 if count.status in AT_REST else count.count
            self._active[key] += active
            if count.placement_group:
                self._groups[key][count.placement_group] += active
        self._names: dict[tuple[str, str], list[str]] | None = None
        if nodes is not None:
            self._names = defaultdict(list)
            for node in nodes:
                if node.node_array_id is not None and node.status not in AT_REST:
                    self._names[node.node_array_id, node.machine_type].append(node.name)

    def kinds(self, array: NodeArray) -> list[str]:
        """The array's machine types in listed order, then those that only existing nodes have."""
        listed = types_of(array, [kind for pool, kind in self._supplies if pool == array.pool_id])
        existing = sorted(kind for array_id, kind in self._active if array_id == array.id)
        return list(
            dict.fromkeys(kind for kind in [*listed, *existing] if (array.pool_id, kind) in self._types)
        )

    def bucket_ids(self) -> list[str]:
        """The ids of every bucket of the cluster."""
        return [bucket_id(array.id, kind) for array in self._arrays for kind in self.kinds(array)]

    def totals(self) -> dict[str, int]:
        """The cluster's own limits: every array's, but no pool's machines counted twice."""
        pools: dict[str, set[str]] = defaultdict(set)
        for array in self._arrays:
            pools[array.pool_id] |= set(self.kinds(array))
        machines = [
            (self._total(pool, kind), self._types[pool, kind].vcpu)
            for pool, kinds in pools.items()
            for kind in kinds
        ]
        count = min(
            sum(number for number, _ in machines), sum(self._array_count(array) for array in self._arrays)
        )
        cores = min(
            sum(number * vcpu for number, vcpu in machines),
            sum(self._array_cores(array) for array in self._arrays),
        )
        return {"maxCount": count, "maxCoreCount": cores}

    def array(self, array: NodeArray) -> dict[str, Any]:
        """One element of `nodearrays`."""
        record: dict[str, Any] = {
            "Configuration": {},
            "Interruptible": False,
            **array.attributes,
            "Name": array.name,
            "IsArray": True,
            "Abstract": True,
            "MachineType": self.kinds(array),
            "Region": self._regions.get(array.pool_id, ""),
            "SubnetId": array.subnet_id,
            "ShutdownPolicy": array.shutdown_policy,
            "ProfileRef": array.profile_ref,
            "PoolId": array.pool_id,
        }
        return {
            "name": array.name,
            "maxCount": self._array_count(array),
            "maxCoreCount": self._array_cores(array),
            "nodearray": record,
            "buckets": [self._bucket(array, kind) for kind in self.kinds(array)],
        }

    def _total(self, pool_id: str, kind: str) -> int:
        return self._supplies.get((pool_id, kind), Supply()).total

    def _array_count(self, array: NodeArray) -> int:
        if array.max_count is not None:
            return array.max_count
        return sum(self._total(array.pool_id, kind) for kind in self.kinds(array))

    def _array_cores(self, array: NodeArray) -> int:
        if array.max_core_count is not None:
            return array.max_core_count
        vcpus = {kind: self._types[array.pool_id, kind].vcpu for kind in self.kinds(array)}
        everything = sum(self._total(array.pool_id, kind) * vcpu for kind, vcpu in vcpus.items())
        widest = max(vcpus.values(), default=0)
        return min(everything, self._array_count(array) * widest)

    def _bucket(self, array: NodeArray, kind: str) -> dict[str, Any]:
        vm, supply = self._types[array.pool_id, kind], self._supplies.get((array.pool_id, kind), Supply())
        usage, active = self._usage.get(array.id, Usage()), self._active[array.id, kind]
        allowance = self._allowances[array.pool_id]
        archived = self._pools[array.pool_id].archived_at is not None
        maxima = [supply.total]
        rooms = [0 if archived else supply.free]
        if array.max_count is not None:
            maxima.append(array.max_count)
            rooms.append(array.max_count - usage.count)
        if array.max_core_count is not None:
            maxima.append(array.max_core_count // vm.vcpu)
            rooms.append((array.max_core_count - usage.cores) // vm.vcpu)
        quota, quota_left = allowance.most(vm.gpu_count), allowance.left(vm.gpu_count)
        if quota is not None and quota_left is not None:
            maxima.append(quota)
            rooms.append(quota_left)
        maximum = max(0, min(maxima))
        available = max(0, min(*rooms, maximum - active))
        bucket = {
            "bucketId": bucket_id(array.id, kind),
            "definition": {"machineType": kind},
            # Merely exhausted is still valid: clients do not see the nodes of an invalid bucket.
            "valid": True,
            "invalidReason": "",
            **self._counted("max", maximum, vm),
            **self._counted("active", active, vm),
            **self._counted("available", available, vm),
            **self._quotas(quota, supply, vm),
            "maxPlacementGroupSize": placement_group_size(array),
            "maxPlacementGroupCoreSize": placement_group_size(array) * vm.vcpu,
            "placementGroups": [
                {"name": name, "activeCount": count, "activeCoreCount": count * vm.vcpu}
                for name, count in sorted(self._groups[array.id, kind].items())
            ],
            "lastCapacityFailure": self._since_shortage(bucket_id(array.id, kind)),
            "virtualMachine": _virtual_machine(vm),
        }
        if self._names is not None:
            bucket["activeNodes"] = self._names.get((array.id, kind), [])
        return bucket

    @staticmethod
    def _counted(word: str, count: int, vm: MachineType) -> dict[str, int]:
        return {f"{word}Count": count, f"{word}CoreCount": count * vm.vcpu}

    @staticmethod
    def _quotas(quota: int | None, supply: Supply, vm: MachineType) -> dict[str, int]:
        most = NO_LIMIT // vm.vcpu
        count = most if quota is None else min(quota, most)
        used = supply.booked * vm.vcpu
        return {
            "quotaCount": count,
            "quotaCoreCount": count * vm.vcpu,
            "consumedCoreCount": used,
            "familyQuotaCount": count,
            "familyQuotaCoreCount": count * vm.vcpu,
            "familyConsumedCoreCount": used,
            "regionalQuotaCount": most,
            "regionalQuotaCoreCount": NO_LIMIT,
            "regionalConsumedCoreCount": used,
        }

    def _since_shortage(self, bucket: str) -> float:
        at = self.shortages.get(bucket)
        return -1.0 if at is None else max(0.0, (self._now - at).total_seconds())


def _virtual_machine(vm: MachineType) -> dict[str, Any]:
    return {
        "vcpuCount": vm.vcpu,
        "pcpuCount": vm.pcpu,
        "vcpuQuotaCount": vm.vcpu,
        "gpuCount": vm.gpu_count,
        "memory": vm.memory_gb,
        "infiniband": vm.infiniband,
    }
