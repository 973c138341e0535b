"""One `bringup dev` for all system tests that do not stop it, with a pool of all its machines."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.dev_stack import Cluster, DevStack

MACHINES = 4


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevStack]:
    """Everything, running."""
    if os.geteuid() != 0:
        pytest.skip("machines need root")
    started = DevStack(Path(tmp_path_factory.mktemp("dev")) / "data", machines=MACHINES)
    try:
        yield started.start()
    finally:
        started.close()


@pytest.fixture(scope="session")
def pool(stack: DevStack) -> str:
    """The pool of all machines."""
    return stack.pool_of_all_machines()


@pytest.fixture
def cluster(stack: DevStack, pool: str) -> Iterator[Callable[..., Cluster]]:
    """Makes clusters from steps; at the end their nodes are terminated and the machines ready again."""
    made: list[Cluster] = []

    def make(*steps: dict[str, Any]) -> Cluster:
        made.append(Cluster(stack, list(steps)).make(pool))
        return made[-1]

    yield make
    for each in made:
        each.clear()


def command(name: str, run: str, check: str | None = None, **more: Any) -> dict[str, Any]:
    """A command step."""
    return {
        "name": name,
        "uses": "command",
        "with": {"run": run} | ({"check": check} if check else {}),
        **more,
    }


def counted(name: str, then: str = "true") -> dict[str, Any]:
    """A step that leaves one line on its machine for each time that it is run."""
    return command(name, f"echo ran >> /var/count.{name}; {then}")
