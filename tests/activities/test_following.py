"""How long a machine has been away is counted from try to try, and from its own last word."""

import asyncio
import contextlib
import dataclasses
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.access import Access
from activities.ssh.pool import ConnectionPool
from activities.ssh.target import SshTarget
from activities.steps.attempt import Attempt, step_key
from activities.steps.following import Follower
from activities.supervisor.spec import StepOutcome, StepSpec
from activities.targets import ClaimedMachine
from activities.threads import Threads
from database.tables import Machine, Run, StepRun
from database.unit_of_work import Database
from domain.failures import FailureClass
from profiles.checking import parse
from profiles.compiling import compile_plan
from profiles.kinds.base import Phase
from tests.fixtures.sandbox_machine import sandbox_machine
from tests.ssh.conftest import make_key

NOWHERE = Database("postgresql+asyncpg://nobody@127.0.0.1:1/none")
PATIENCE = 300.0


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads(2)
    yield made
    made.close()


def attempt(target: SshTarget) -> Attempt:
    """The first attempt of a step that prints nothing, so that nothing is to be stored."""
    content = parse({"schema": 1, "steps": [{"name": "s", "uses": "command", "with": {"run": "true"}}]})
    plan = compile_plan(content, profile="p@1", content_digest="-", phase=Phase.CREATE, hostname=None)
    run_id = uuid.uuid4()
    record = StepRun(
        run_id=run_id, position=0, attempt=1, stdout_size=0, stderr_size=0, started_at=datetime.now(UTC)
    )
    held = ClaimedMachine(machine=Machine(name="m-1"), run=Run(), target=target, cluster=None)
    spec = StepSpec(key=step_key(run_id, 0, 1), token=1, run=b"true")
    return Attempt(held=held, step=plan.steps[0], record=record, spec=spec)


class Try:
    """One try of the activity that follows the step, told what the try before has said last."""

    def __init__(self, threads: Threads, target: SshTarget, *away: float) -> None:
        self.said: list[tuple[Any, ...]] = []
        self._attempt = attempt(target)
        self._threads = threads
        self._environment = ActivityEnvironment()
        self._environment.info = dataclasses.replace(
            ActivityEnvironment.default_info(),
            heartbeat_details=[{"unreachableSeconds": seconds} for seconds in away],
        )
        self._environment.on_heartbeat = lambda *details: self.said.append(details)

    async def run(self) -> StepOutcome:
        """Raises what the follower raises."""
        return await self._environment.run(self._follow)

    async def _follow(self) -> StepOutcome:
        with contextlib.closing(ConnectionPool()) as pool:
            access = Access(pool, self._threads)
            follower = Follower(NOWHERE, access, self._attempt, lost_after=PATIENCE)
            return await follower.to_end()


@pytest.fixture
def nobody(tmp_path: Path) -> SshTarget:
    """An address where nothing listens."""
    return SshTarget("127.0.0.1", 1, "root", make_key(tmp_path / "key"))


async def test_a_try_says_for_how_long_the_machine_has_been_away(threads: Threads, nobody: SshTarget) -> None:
    first = Try(threads, nobody)
    following = asyncio.ensure_future(first.run())
    async with asyncio.timeout(10):
        while len(told := [details[0]["unreachableSeconds"] for details in first.said if details]) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    following.cancel()
    await asyncio.wait({following})
    assert told == sorted(told)
    assert 0 <= told[0] < told[-1] < 10


async def test_the_next_try_counts_on_and_gives_the_machine_up_at_the_limit(
    threads: Threads, nobody: SshTarget
) -> None:
    with pytest.raises(ApplicationError) as lost:
        await asyncio.wait_for(Try(threads, nobody, PATIENCE + 1).run(), 10)
    assert lost.value.type == FailureClass.LOST_MACHINE
    assert lost.value.non_retryable
    assert "unreachable for 301 s during the step" in lost.value.message


@pytest.mark.system
async def test_the_machines_word_ends_the_count(threads: Threads, tmp_path: Path) -> None:
    with sandbox_machine(tmp_path, "follow") as machine:
        again = Try(threads, machine.target(), PATIENCE + 1)
        assert (await asyncio.wait_for(again.run(), 20)).exit_status == 0
    assert again.said[-1] == ()
