"""A machine that was given to another holder refuses the one before."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from activities.supervisor.client import Supervisor
from activities.supervisor.errors import TokenRefused, Unproven
from activities.supervisor.spec import StepState
from tests.ssh.helpers import eventually, exists, finish, pretend, run, step


def test_a_lower_token_is_refused_for_everything(supervisor: Supervisor, base: str) -> None:
    supervisor.raise_token(7)
    with pytest.raises(TokenRefused) as caught:
        finish(supervisor, step("a.1.1", f"touch {base}/ran", token=6))
    assert (caught.value.failure_class, caught.value.token, caught.value.highest) == ("superseded", 6, 7)
    with pytest.raises(TokenRefused):
        supervisor.cancel("a.1.1", 6)
    with pytest.raises(TokenRefused):
        supervisor.raise_token(6)
    assert not Path(base, "ran").exists()


def test_an_equal_token_may_go_on(supervisor: Supervisor) -> None:
    supervisor.raise_token(7)
    supervisor.raise_token(7)
    assert finish(supervisor, step("a.1.1", "exit 1", token=7)).exit_status == 1


def test_a_step_with_a_higher_token_raises_it(supervisor: Supervisor) -> None:
    finish(supervisor, step("a.1.1", "true", token=3))
    finish(supervisor, step("b.1.1", "true", token=9))
    with pytest.raises(TokenRefused):
        finish(supervisor, step("a.1.1", "true", token=3))


def test_raising_the_token_ends_the_steps_of_lower_ones(supervisor: Supervisor, base: str) -> None:
    for name in "ab":
        spec = step(f"{name}.1.1", f"echo $$ > {base}/{name}; exec sleep 300", token=1)
        assert run(supervisor, spec, should_stop=Path(base, name).exists) is None
    pids = [int(Path(base, name).read_text()) for name in "ab"]
    supervisor.raise_token(2, grace_s=0.2)
    assert not any(exists(pid) for pid in pids)
    assert finish(supervisor, step("a.1.1", "true", token=2)).state is StepState.CANCELED


def test_raising_the_token_leaves_ended_and_own_steps_alone(supervisor: Supervisor, base: str) -> None:
    finish(supervisor, step("a.1.1", "exit 5", token=1))
    own = step("b.1.1", f"until test -e {base}/go; do sleep 0.05; done; exit 8", token=2)
    assert run(supervisor, own, should_stop=Path(base, "runs", "b.1.1_st").exists) is None
    supervisor.raise_token(2)
    Path(base, "go").touch()
    assert finish(supervisor, own).exit_status == 8
    assert finish(supervisor, step("a.1.1", "exit 5", token=2)).exit_status == 5


def test_nothing_starts_while_an_earlier_holders_step_may_still_run(
    supervisor: Supervisor, base: str
) -> None:
    supervisor.facts()
    pretend(base, way="none")
    lasting = step("a.1.1", f"echo $$ > {base}/pid; exec sleep 300", token=1)
    assert run(supervisor, lasting, should_stop=Path(base, "pid").exists) is None
    with pytest.raises(Unproven) as caught:
        supervisor.raise_token(2, grace_s=0.2)
    assert "a.1.1" in str(caught.value)
    with pytest.raises(Unproven):
        finish(supervisor, step("b.1.1", f"touch {base}/ran", token=2))
    assert not Path(base, "ran").exists()
    assert not exists(int(Path(base, "pid").read_text()))


def test_steps_racing_with_a_higher_token_are_ended_or_refused(supervisor: Supervisor, base: str) -> None:
    supervisor.facts()

    def attempt(number: int) -> str:
        try:
            spec = step(f"{number}.1.1", f"echo $$ >> {base}/pids; exec sleep 300", token=1)
            return finish(supervisor, spec, grace_s=0.1).state.value
        except TokenRefused:
            return "refused"

    with ThreadPoolExecutor(6) as threads:
        attempts = [threads.submit(attempt, number) for number in range(6)]
        eventually(lambda: Path(base, "pids").exists(), "one of the steps runs")
        supervisor.raise_token(2, grace_s=0.1)
        assert {done.result(20) for done in attempts} <= {"canceled", "refused"}
    pids = [int(pid) for pid in Path(base, "pids").read_text().split()]
    assert not any(exists(pid) for pid in pids)
