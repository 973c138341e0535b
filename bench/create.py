"""What a create takes, against bare paramiko running the same commands: `python -m bench.create`.

Starts a `bringup dev` of its own below a temporary folder, creates as many nodes as there are machines with a
profile of short steps, and runs the same bodies on the same machines over bare paramiko: one connection and
one thread a machine, no records, no supervisor, nothing durable. Prints wall times, the processor time that
each part used, and the ratio. Needs root.
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paramiko
import psutil

from tests.fixtures.dev_stack import Cluster, DevStack


def bodies(count: int) -> list[str]:
    """Short commands, such as recipes are full of."""
    return [f"echo {number} > /var/bench.{number}" for number in range(count)]


def processor_seconds(stack: DevStack) -> dict[str, float]:
    """Processor time used so far, by role; a role's children count with it."""
    used = {}
    for role, pid in stack.ready["pids"].items():
        process = psutil.Process(pid)
        used[role] = sum(sum(each.cpu_times()[:2]) for each in [process, *process.children(recursive=True)])
    used["whole host"] = sum(psutil.cpu_times()[:3])
    return used


@contextmanager
def timed(what: str, results: dict[str, float]) -> Iterator[None]:
    """Prints and keeps the wall time of a block."""
    begun = time.monotonic()
    yield
    results[what] = time.monotonic() - begun
    print(f"{what:<42}{results[what]:8.2f} s")


def bring_up(stack: DevStack, cluster: Cluster, count: int, results: dict[str, float]) -> None:
    """One create of `count` nodes, from the request to the operation's end."""
    before = processor_seconds(stack)
    with timed(f"bringup: create of {count}", results):
        begun = time.monotonic()
        answer = cluster.create(count)
        accepted = time.monotonic() - begun
        operation = cluster.ended(answer.json()["operationId"], seconds=600)
    assert operation["state"] == "succeeded", operation
    print(f"  answered 202 after {accepted * 1000:.0f} ms; processor seconds:")
    after = processor_seconds(stack)
    for part, seconds in after.items():
        print(f"    {part:<14}{seconds - before.get(part, 0):6.1f}")


def in_threads(work: Callable[[dict[str, Any]], None], machines: list[dict[str, Any]]) -> None:
    """One thread a machine."""
    threads = [threading.Thread(target=work, args=(machine,)) for machine in machines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def bare_paramiko(stack: DevStack, commands: list[str], results: dict[str, float]) -> None:
    """The peer: the same commands, one after another, over one connection a machine."""
    key = paramiko.Ed25519Key.from_private_key_file(str(stack.data_dir / "sandbox" / "ssh" / "id_ed25519"))
    failures: list[str] = []

    def run_all(machine: dict[str, Any]) -> None:
        client = paramiko.SSHClient()
        client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
        client.connect(
            machine["address"], username="root", pkey=key, allow_agent=False, look_for_keys=False, timeout=30
        )
        for command in commands:
            _, stdout, _ = client.exec_command(command)
            if stdout.channel.recv_exit_status() != 0:
                failures.append(f"{machine['name']}: {command}")
        client.close()

    machines = stack.fleet("nodes/list", limit=500)["items"]
    with timed(f"bare paramiko on {len(machines)}", results):
        in_threads(run_all, machines)
    assert not failures, failures


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
        stack = DevStack(Path(folder) / "data", machines=arguments.machines)
        try:
            stack.start(seconds=300)
            cluster = Cluster(stack, steps).make(stack.pool_of_all_machines())
            for _ in range(arguments.rounds):
                results: dict[str, float] = {}
                bare_paramiko(stack, commands, results)
                bring_up(stack, cluster, arguments.machines, results)
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
