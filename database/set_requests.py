"""The sets of a create as asked for, made sense of against the cluster's arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from database.naming import NameFormat
from database.planning import NodeSet, Planner
from database.refusals import Detail, invalid
from database.tables import NodeArray


@dataclass(frozen=True, slots=True)
class SetRequest:
    """One set as asked for, its types checked."""

    node_array: str
    count: int
    machine_type: str | None = None
    name_format: str | None = None
    name_offset: int = 1
    attributes: Mapping[str, Any] = field(default_factory=dict)
    placement_group: str | None = None


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`, mappings merged at every depth."""
    result = dict(below)
    for key, value in above.items():
        known = result.get(key)
        both = isinstance(known, Mapping) and isinstance(value, Mapping)
        result[key] = merged(known, value) if both else value  # type: ignore[arg-type]
    return result


def resolve_sets(sets: Sequence[SetRequest], arrays: Mapping[str, NodeArray]) -> list[NodeSet]:
    """The sets with their arrays, formats and merged attributes; Refusal with every unknown array."""
    problems: list[Detail] = []
    resolved: list[NodeSet] = []
    for index, asked in enumerate(sets):
        array = arrays.get(asked.node_array)
        if array is None:
            there_are = ", ".join(arrays) or "none"
            problems.append(
                Detail(
                    f"sets[{index}].nodearray",
                    f"there is no nodearray {asked.node_array}; there are: {there_are}",
                )
            )
            continue
        attributes = merged(array.attributes, asked.attributes)
        default = f"{array.name.replace('%', '%%')}-%d"
        group = asked.placement_group or attributes.get("PlacementGroupId")
        resolved.append(
            NodeSet(
                array=array,
                count=asked.count,
                machine_type=asked.machine_type,
                format=NameFormat(asked.name_format or default, f"sets[{index}].nameFormat"),
                offset=max(1, asked.name_offset),
                attributes=attributes,
                placement_group=group if isinstance(group, str) and group else None,
            )
        )
    if problems:
        raise invalid(*problems)
    return resolved


def check_types(resolved: Sequence[NodeSet], planner: Planner) -> None:
    """Refuses machine types that are no bucket of their array."""
    problems = []
    for index, asked in enumerate(resolved):
        known = planner.bucket_types(asked.array)
        if asked.machine_type and asked.machine_type not in known:
            problems.append(
                Detail(
                    f"sets[{index}].definition.machineType",
                    f"nodearray {asked.array.name} has no bucket of machine type {asked.machine_type}; "
                    f"it has: {', '.join(known) or 'none'}",
                )
            )
    if problems:
        raise invalid(*problems)
