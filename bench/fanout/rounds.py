"""Rounds: each tool once on the same machines, every one from machines where nothing is in effect."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.fanout.errors import fail_on
from bench.fanout.recipe import verify
from bench.fanout.tools import Tool
from bench.hosts import hosts_of
from bench.processor import Meter
from bench.stack import BenchStack


@dataclass(frozen=True)
class Sample:
    """One tool's run. All times in seconds; `host` is the whole host, other work on it included."""

    tool: str
    machines: int
    round: int
    wall: float
    own: float
    on_machines: float
    host: float
    roles: dict[str, float]
    details: dict[str, float]


def measure(tool: Tool, stack: BenchStack, meter: Meter, machines: int, number: int) -> Sample:
    """Applies the recipe by one tool, checks all machines before and after, and takes it back.

    Raises BenchError when anything failed or was left half done on any machine.
    """
    hosts = hosts_of(stack, machines)
    fail_on(f"before {tool.name}", verify(hosts, applied=False))
    tool.prepare(hosts)
    meter.settle()
    before = meter.usage()
    wall = tool.apply()
    used = meter.usage() - before
    tool.check()
    fail_on(f"after {tool.name}", verify(hosts, applied=True))
    sample = Sample(
        tool=tool.name,
        machines=machines,
        round=number,
        wall=wall,
        own=tool.own_seconds(used),
        on_machines=used.machines,
        host=used.host,
        roles=used.roles,
        details=tool.details(),
    )
    tool.undo(hosts)
    return sample


def in_turn(tools: Sequence[Tool], number: int) -> list[Tool]:
    """The tools of a round; each round begins with another, so that none always follows the same one."""
    first = number % len(tools)
    return [*tools[first:], *tools[:first]]
