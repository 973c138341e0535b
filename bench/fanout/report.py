"""What a run found: a table for people, a document for programs."""

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from bench.fanout.recipe import NAMES
from bench.fanout.rounds import Sample

OURS = "bringup"
_FIGURES = ("wall", "own", "on_machines", "host")
_COLUMNS = ("wall", "own", "machines", "host", "wall x", "host x")


def ratios(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """bringup against each peer at each number of machines: the median over the rounds."""
    found = []
    for machines in sorted({sample.machines for sample in samples}):
        by_tool = {
            tool: [sample for sample in samples if (sample.tool, sample.machines) == (tool, machines)]
            for tool in dict.fromkeys(sample.tool for sample in samples)
        }
        ours = {sample.round: sample for sample in by_tool.pop(OURS)}
        for peer, theirs in by_tool.items():
            found.append(
                {
                    "machines": machines,
                    "peer": peer,
                    "wall": median(ours[each.round].wall / each.wall for each in theirs),
                    "host": median(ours[each.round].host / each.host for each in theirs),
                }
            )
    return found


def document(samples: Sequence[Sample], versions: dict[str, str]) -> dict[str, Any]:
    """Everything, with what is needed to read it later. Times are seconds."""
    return {
        "schema": 1,
        "host": {
            "processors": os.cpu_count(),
            "kernel": platform.release(),
            "python": platform.python_version(),
        },
        "versions": versions,
        "steps": list(NAMES),
        "samples": [asdict(sample) for sample in samples],
        "ratios": ratios(samples),
    }


def line(sample: Sample) -> str:
    """One run in one line."""
    return (
        f"{sample.machines:>5}  {sample.tool:<10}{sample.wall:9.2f} s wall"
        f"{sample.own:9.2f} s own{sample.on_machines:9.2f} s machines{sample.host:9.2f} s host"
    )


def table(samples: Sequence[Sample]) -> str:
    """Medians by number of machines and tool, the ratios, and where bringup's time goes."""
    return "\n".join([*_results(samples), "", *_where_it_goes(samples)])


def _results(samples: Sequence[Sample]) -> list[str]:
    lines = [
        "Ten steps; median seconds. Wall time, and processor time of the tool's own processes, of what ran",
        "on the machines, and of the whole host. The last two columns: bringup divided by that tool, of wall",
        "time and of the whole host's processor time.",
        "",
        f"{'machines':>8}  {'tool':<10}" + "".join(f"{title:>10}" for title in _COLUMNS),
    ]
    against = {(each["machines"], each["peer"]): each for each in ratios(samples)}
    for machines, tool in dict.fromkeys((sample.machines, sample.tool) for sample in samples):
        these = [each for each in samples if (each.machines, each.tool) == (machines, tool)]
        figures = [median(getattr(each, name) for each in these) for name in _FIGURES]
        if found := against.get((machines, tool)):
            figures += [found["wall"], found["host"]]
        lines.append(f"{machines:>8}  {tool:<10}" + "".join(f"{figure:>10.2f}" for figure in figures))
    return lines


def _where_it_goes(samples: Sequence[Sample]) -> list[str]:
    ours = [sample for sample in samples if sample.tool == OURS]
    sizes = sorted({sample.machines for sample in ours})
    lines = ["Where bringup's processor time goes (median seconds):"]
    lines += _rows({n: [_parts(each) for each in ours if each.machines == n] for n in sizes})
    lines += ["", "When what happened (median seconds since the request was sent):"]
    lines += _rows({n: [each.details for each in ours if each.machines == n] for n in sizes})
    return lines


def _parts(sample: Sample) -> dict[str, float]:
    rest = sample.host - sample.own - sample.on_machines
    return {**sample.roles, "machines": sample.on_machines, "all else on this host": rest}


def _rows(found: dict[int, list[dict[str, float]]]) -> list[str]:
    """A row for each name, a column for each number of machines."""
    names = dict.fromkeys(name for each in found.values() for one in each for name in one)
    rows = [f"{'machines':>28}" + "".join(f"{size:>9}" for size in found)]
    for name in names:
        figures = [median(one[name] for one in each) for each in found.values()]
        rows.append(f"{name:>28}" + "".join(f"{figure:>9.2f}" for figure in figures))
    return rows
