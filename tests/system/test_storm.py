"""Many operations while everything dies, freezes and is cut off: nothing is lost, doubled or left.

What happens is chosen at random; the seed is printed, and BRINGUP_STORM_SEED gives the same choices again
(not the same moments). BRINGUP_STORM_FAULTS says how often something is killed or frozen; links that are cut
and power that goes come on top of that.
"""

import os
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from providers.sandbox.layout import SiteLayout
from tests.fixtures.dev_stack import Cluster, DevStack, eventually
from tests.system.storm.client import PatientClient
from tests.system.storm.invariants import Ledgers, of_an_operation, of_logs, of_processes
from tests.system.storm.people import People
from tests.system.storm.recipes import LEDGER, RECIPES
from tests.system.storm.weather import Weather
from tests.system.test_dev_restart import left_of

pytestmark = [pytest.mark.system, pytest.mark.long]
MACHINES = 6
FAULTS = int(os.environ.get("BRINGUP_STORM_FAULTS", "55"))
# Of processes, what none of them may ever have said.
FORBIDDEN = {
    "postgres.log": "deadlock detected|PANIC",
    "api.log": '"level": "(error|critical)"',
    "worker.log": "unexpected failure|IllegalTransition|deadlock detected|cannot close operation",
}


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[DevStack]:
    """One of its own, whose machines are waited for longer than any fault lasts."""
    if os.geteuid() != 0:
        pytest.skip("machines need root")
    started = DevStack(tmp_path / "data", machines=MACHINES, environment={"BRINGUP_REACH_SECONDS": "120"})
    try:
        yield started.start()
    finally:
        started.close()


def settled(client: PatientClient) -> bool:
    """Whether every operation has ended. Who is held is given up, for nobody is left to mend anything."""
    left = [one for one in client.operations() if not one["endTime"]]
    for one in left:
        if one["state"] == "held":
            client.fleet("operations/abort", operationId=one["id"])
    return not left


def all_ready(client: PatientClient) -> bool:
    return all(machine["state"] == "ready" for machine in client.machines())


def nodes_given_up(client: PatientClient, people: People) -> bool:
    """Whether no cluster has a node; asks for the end of those that nobody has asked for."""
    left = {name: client.nodes(name) for name in RECIPES}
    for name, nodes in left.items():
        if wanted := [node["Name"] for node in nodes if node["TargetState"] != "Terminated"]:
            people.end_nodes(name, wanted)
    return not any(left.values())


def broken_records(client: PatientClient) -> list[str]:
    """Everything that the records say and must not say."""
    found: list[str] = []
    steps: dict[str, list[dict[str, Any]]] = {}
    cleaned: dict[str, list[str]] = {}
    for listed in client.operations():
        operation = client.operation(listed["id"])
        steps[listed["id"]] = client.steps(listed["id"])
        what = f"{operation['action']} {listed['id']} of {operation['cluster']}: "
        found += [what + said for said in of_an_operation(operation, steps[listed["id"]])]
        found += [what + said for said in of_logs(client, steps[listed["id"]])]
        if operation["action"] == "clean":
            machine = client.fleet("operations/get", operationId=listed["id"]).json()["operation"]["nodeId"]
            cleaned.setdefault(machine, []).append(operation["startTime"])
    ledgers = Ledgers(client, steps, cleaned)
    assert ledgers.ran, "no machine has told what was run on it"
    return [*found, *ledgers.broken()]


def forbidden_lines(logs: Path) -> list[str]:
    """Lines of the processes' logs that tell of a fault of their own."""
    return [
        f"{name}: {line[:400]}"
        for name, pattern in FORBIDDEN.items()
        for line in (logs / name).read_text(errors="replace").splitlines()
        if re.search(pattern, line)
    ]


@pytest.mark.timeout(1800)
def test_no_step_is_lost_doubled_or_left_in_a_storm(stack: DevStack) -> None:
    seed = int(os.environ.get("BRINGUP_STORM_SEED", time.time_ns() % 1_000_000))
    print(f"the storm's seed is {seed}")  # noqa: T201  # for whoever wants it again
    pool = stack.pool_of_all_machines()
    for name, steps in RECIPES.items():
        Cluster(stack, [*steps, LEDGER], name=name).make(pool)
    client = PatientClient(stack)
    machines = [str(machine["name"]) for machine in client.machines()]
    weather = Weather(stack, machines, random.Random(seed + 1))
    people = People(client, random.Random(seed), on_end=weather.strike)
    people.start()
    try:
        weather.blow(FAULTS)
    finally:
        people.stop()

    eventually("every operation has ended", lambda: settled(client), 240)
    runs = {str(step["runId"]) for one in client.operations() for step in client.steps(one["id"])}
    found = list(of_processes(SiteLayout(stack.data_dir / "sandbox"), runs))
    eventually("every node is given up", lambda: nodes_given_up(client, people), 240)
    eventually("every machine is ready again", lambda: all_ready(client), 240)
    eventually("every operation has ended", lambda: settled(client), 60)
    found += broken_records(client)
    assert stack.stop(seconds=30) == 0
    found += [*client.wrong, *forbidden_lines(stack.data_dir / "logs"), *left_of(stack.data_dir)]
    said = "\n".join(found)
    assert not found, f"seed {seed}, {dict(Counter(weather.faults))}:\n{said}"
