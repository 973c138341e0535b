"""A worker with fewer places than machines gets everything done, in turns."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.dev_stack import Cluster, DevStack
from tests.system.conftest import command

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevStack]:
    if os.geteuid() != 0:
        pytest.skip("machines need root")
    folder = Path(tmp_path_factory.mktemp("narrow")) / "data"
    started = DevStack(folder, machines=5, environment={"BRINGUP_MACHINE_THREADS": "4"})
    try:
        yield started.start()
    finally:
        started.close()


def test_a_terminate_of_more_nodes_than_there_are_places_ends_what_runs_on_them(stack: DevStack) -> None:
    demo = Cluster(stack, [command("long", "exec sleep 3000", timeoutSeconds=3600)])
    demo.make(stack.pool_of_all_machines())
    create = demo.create(5).json()["operationId"]
    demo.running(create, "long", 5)
    terminate = demo.terminate(*[f"gpu-{number}" for number in range(1, 6)]).json()["operationId"]
    assert demo.ended(terminate, 120)["state"] == "succeeded"
    assert demo.ended(create)["state"] in ("superseded", "canceled")
    assert demo.nodes() == []
