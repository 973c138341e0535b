"""What a create takes, against bare paramiko running the same commands: `python -m bench.create`.

Starts a `bringup dev` of its own below a temporary folder, creates as many nodes as there are machines with a
profile of short steps, and runs the same bodies on the same machines over bare paramiko: one connection and
one thread a machine, no records, no supervisor, nothing durable. Prints wall times, the processor time that
each part used, and the ratio. Needs root. `python -m bench.fanout` compares with more tools, on one recipe;
this one takes any number of steps.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.fanout.errors import fail_on
from bench.fanout.paramiko import run_all
from bench.hosts import hosts_of
from bench.processor import Meter
from bench.stack import BenchStack
from tests.fixtures.dev_stack import Cluster


def bodies(count: int) -> list[str]:
    """Short commands, such as recipes are full of."""
    return [f"echo {number} > /var/bench.{number}" for number in range(count)]


@contextmanager
def timed(what: str, results: dict[str, float]) -> Iterator[None]:
    """Prints and keeps the wall time of a block."""
    begun = time.monotonic()
    yield
    results[what] = time.monotonic() - begun
    print(f"{what:<42}{results[what]:8.2f} s")


def bring_up(meter: Meter, cluster: Cluster, count: int, results: dict[str, float]) -> None:
    """One create of `count` nodes, from the request to the operation's end."""
    before = meter.usage()
    with timed(f"bringup: create of {count}", results):
        begun = time.monotonic()
        answer = cluster.create(count)
        accepted = time.monotonic() - begun
        operation = cluster.ended(answer.json()["operationId"], seconds=600)
    used = meter.usage() - before
    assert operation["state"] == "succeeded", operation
    print(f"  answered 202 after {accepted * 1000:.0f} ms; processor seconds:")
    for part, seconds in {**used.roles, "machines": used.machines, "whole host": used.host}.items():
        print(f"    {part:<14}{seconds:6.1f}")


def bare_paramiko(stack: BenchStack, commands: list[str], results: dict[str, float]) -> None:
    """The peer: the same commands, one after another, over one connection a machine."""
    hosts = hosts_of(stack, stack.machines)
    with timed(f"bare paramiko on {len(hosts)}", results):
        failures = run_all(hosts, commands)
    fail_on("paramiko", failures)


def main() -> None:
    """Runs both and prints the ratio."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.create",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--machines", type=int, default=40, help="1 to 250 (default 40)")
    parser.add_argument("--steps", type=int, default=10, help="1 to 200 (default 10)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (default 3)")
    arguments = parser.parse_args()
    commands = bodies(arguments.steps)
    steps = [
        {"name": f"step-{number}", "uses": "command", "with": {"run": body}}
        for number, body in enumerate(commands)
    ]
    ratios = []
    with tempfile.TemporaryDirectory(prefix="bringup-bench.") as folder:
        stack = BenchStack(Path(folder) / "data", machines=arguments.machines)
        try:
            meter = Meter(stack.start())
            cluster = Cluster(stack, steps).make(stack.pool_of_all_machines())
            for _ in range(arguments.rounds):
                results: dict[str, float] = {}
                bare_paramiko(stack, commands, results)
                bring_up(meter, cluster, arguments.machines, results)
                paramiko_took, bringup_took = results.values()
                ratios.append(bringup_took / paramiko_took)
                with timed("bringup: terminate and clean all", results):
                    cluster.clear()
        finally:
            stack.close()
    print(
        f"bringup / bare paramiko, {arguments.machines} machines x {arguments.steps} steps: "
        f"median {sorted(ratios)[len(ratios) // 2]:.1f} of {', '.join(f'{ratio:.1f}' for ratio in ratios)}"
    )


if __name__ == "__main__":
    main()
