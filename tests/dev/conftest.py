"""Fixtures of the tests of `bringup dev`."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.dev.process import ChildEvent, EventKind
from tests.fixtures.postgres import postgres_server as postgres_server

WITHIN = 15.0  # seconds that anything here may take


class Events:
    """Collects what happened to children, and waits for it."""

    def __init__(self) -> None:
        self.seen: list[ChildEvent] = []

    def __call__(self, event: ChildEvent) -> None:
        self.seen.append(event)

    def of(self, kind: EventKind) -> list[ChildEvent]:
        """The events of one kind so far."""
        return [event for event in self.seen if event.kind is kind]

    async def until(self, kind: EventKind, count: int = 1) -> ChildEvent:
        """Waits for the `count`th event of a kind and returns it."""
        await eventually(lambda: len(self.of(kind)) >= count)
        return self.of(kind)[count - 1]


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def private_folder(tmp_path: Path) -> Path:
    """A folder below one that only its owner may enter, like a home or one made by mktemp."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    return closed / "data"


async def eventually(condition: Callable[[], bool], within: float = WITHIN) -> None:
    """Returns as soon as the condition holds; fails the test when it does not `within` seconds."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.02)
