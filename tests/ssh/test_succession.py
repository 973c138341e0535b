"""A run's steps come one after another: nothing of an earlier one is left when the next begins."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from activities.supervisor.client import Supervisor
from activities.supervisor.errors import SupervisorError, Unproven
from activities.supervisor.spec import StepState
from tests.ssh.helpers import eventually, exists, finish, pretend, run, runner_of, step


def begun(
    supervisor: Supervisor, base: str, key: str, body: str = "exec sleep 300", *, timeout_s: int = 60
) -> int:
    """Starts a step and lets go of it; its process id."""
    file = Path(base, f"{key}.pid")
    spec = step(key, f"echo $$ > {file}; {body}", timeout_s=timeout_s)
    assert run(supervisor, spec, should_stop=lambda: file.exists() and bool(file.read_text())) is None
    return int(file.read_text())


def remove_records(base: str, key: str) -> None:
    for file in Path(base, "runs").glob(f"{key}_*"):
        file.unlink()


def kill_runner(base: str, key: str) -> None:
    story = Path(base, "runs", f"{key}_st").read_text().splitlines()
    pid = int(next(line for line in story if line.startswith("runner ")).split()[1])
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not exists(pid), "its runner is gone")


@pytest.fixture
def grouped(supervisor: Supervisor) -> Supervisor:
    if supervisor.facts().containment != "cgroup":
        pytest.skip("no writable cgroup2 here")
    return supervisor


def test_the_next_attempt_ends_the_one_that_still_runs(supervisor: Supervisor, base: str) -> None:
    first = begun(supervisor, base, "r.2.1")
    other = begun(supervisor, base, "another.1.1")
    outcome = finish(supervisor, step("r.2.2", f"! kill -0 {first} 2>/dev/null"))
    assert (outcome.state, outcome.exit_status) == (StepState.EXITED, 0)
    assert exists(other)
    assert finish(supervisor, step("r.2.1", "true")).state is StepState.CANCELED


def test_the_next_step_ends_what_a_lost_one_left(grouped: Supervisor, base: str) -> None:
    first = begun(grouped, base, "r.1.1", "trap '' TERM; while :; do sleep 1; done")
    kill_runner(base, "r.1.1")
    assert exists(first)
    assert finish(grouped, step("r.2.1", "true"), grace_s=0.2).exit_status == 0
    assert not exists(first)


def test_services_that_an_ended_step_left_stay(grouped: Supervisor, base: str) -> None:
    file = Path(base, "service")
    finish(grouped, step("r.1.1", f"setsid sleep 300 > /dev/null 2>&1 < /dev/null & echo $! > {file}"))
    service = int(file.read_text())
    assert finish(grouped, step("r.2.1", "true")).exit_status == 0
    grouped.quit("r", 1, 0.2)
    grouped.purge()
    grouped.raise_token(2)
    assert exists(service)
    os.kill(service, signal.SIGKILL)


def test_a_start_that_was_held_up_is_refused_once_its_successor_has_begun(
    supervisor: Supervisor, base: str
) -> None:
    later = begun(supervisor, base, "r.2.2")
    for key in ("r.2.1", "r.1.7"):
        with pytest.raises(SupervisorError, match="has begun after") as caught:
            finish(supervisor, step(key, f"touch {base}/ran"))
        assert caught.value.failure_class == "superseded"
    assert exists(later)
    assert not Path(base, "ran").exists()


def test_nothing_starts_beside_what_cannot_be_ended(supervisor: Supervisor, base: str) -> None:
    pid = begun(supervisor, base, "r.1.1")
    kill_runner(base, "r.1.1")
    pretend(base, way="none")
    for _ in range(2):
        with pytest.raises(Unproven, match=r"r\.1\.1"):
            finish(supervisor, step("r.1.2", f"touch {base}/ran"), grace_s=0.1)
    assert exists(pid)
    assert not Path(base, "ran").exists()
    os.kill(pid, signal.SIGKILL)


def test_quit_ends_all_that_a_run_has_left(grouped: Supervisor, base: str) -> None:
    lost, hidden = begun(grouped, base, "r.1.1"), 0
    kill_runner(base, "r.1.1")
    other = begun(grouped, base, "other.1.1")
    hidden = begun(grouped, base, "r.nvml.1")
    grouped.quit("r", 1, 0.2)
    assert not exists(lost)
    assert not exists(hidden)
    assert exists(other)


def test_a_step_whose_records_are_gone_is_ended_by_its_successor(grouped: Supervisor, base: str) -> None:
    first = begun(grouped, base, "r.1.1")
    remove_records(base, "r.1.1")
    assert finish(grouped, step("r.1.2", "true")).exit_status == 0
    assert not exists(first)


def test_a_step_whose_records_are_gone_is_ended_by_a_higher_token(grouped: Supervisor, base: str) -> None:
    first = begun(grouped, base, "r.1.1")
    remove_records(base, "r.1.1")
    grouped.raise_token(2, 0.2)
    assert not exists(first)


def test_a_step_whose_records_are_gone_still_has_its_time_limit(grouped: Supervisor, base: str) -> None:
    first = begun(grouped, base, "r.1.1", timeout_s=1)
    remove_records(base, "r.1.1")
    eventually(lambda: not exists(first), "the machine ends it by itself")


def test_a_lost_step_stays_lost_when_what_it_left_has_been_ended(grouped: Supervisor, base: str) -> None:
    pid = begun(grouped, base, "r.1.1")
    kill_runner(base, "r.1.1")
    assert (finish(grouped, step("r.1.1", "true")).state, exists(pid)) == (StepState.LOST, True)
    proof = grouped.cancel("r.1.1", 1, 0.2)
    assert (proof.state, proof.clean, exists(pid)) == (StepState.LOST, True, False)
    outcome = finish(grouped, step("r.1.1", "true"))
    assert (outcome.state, outcome.clean) == (StepState.LOST, True)


@pytest.mark.parametrize("key", ["r.1.1", "r.2.1", "r.0.1.boot"])
def test_nothing_of_a_run_starts_once_it_has_been_ended(supervisor: Supervisor, base: str, key: str) -> None:
    """Whoever was held up before the start, for however long."""
    finish(supervisor, step("r.0.1", "true"))
    supervisor.quit("r", 1, 0.2)
    with pytest.raises(SupervisorError, match="has been ended") as refused:
        run(supervisor, step(key, f"touch {base}/ran"))
    assert refused.value.failure_class == "superseded"
    assert not Path(base, "ran").exists()
    assert finish(supervisor, step("another.0.1", "true")).exit_status == 0


@pytest.mark.parametrize("check", [None, "exit 1"])
def test_a_failed_attempt_leaves_nothing_beside_the_next(
    supervisor: Supervisor, base: str, check: str | None
) -> None:
    pid = Path(base, "pid")
    left = f"sh -c 'trap \"\" TERM; echo $$ > {pid}; while :; do sleep 1; done' &"
    status = 3 if check is None else 0
    body = f"{left}\nuntil test -s {pid}; do sleep 0.05; done; exit {status}"
    outcome = finish(supervisor, step("r.1.1", body, check=check), grace_s=0.2)
    assert (outcome.exit_status, outcome.clean) == (status, True)
    assert not exists(int(pid.read_text()))


def test_a_time_limit_holds_though_its_watchdog_was_killed(grouped: Supervisor, base: str) -> None:
    """Found by whoever follows, some seconds late."""
    spec = step("r.1.1", f"echo $$ > {base}/pid; exec sleep 300", timeout_s=1)
    runner = 0

    def watchdog_killed() -> bool:
        nonlocal runner
        if not Path(base, "pid").exists():
            return False
        runner = runner_of(base, "r.1.1")
        body = int(Path(base, "pid").read_text())
        children = Path(f"/proc/{runner}/task/{runner}/children").read_text().split()
        for child in map(int, children):
            if child != body:
                os.kill(child, signal.SIGKILL)
        return True

    assert run(supervisor=grouped, spec=spec, should_stop=watchdog_killed) is None
    assert finish(grouped, spec).state is StepState.TIMED_OUT
    assert not exists(int(Path(base, "pid").read_text()))


def test_a_runner_that_was_stopped_is_woken_to_record_the_end(supervisor: Supervisor, base: str) -> None:
    process = begun(supervisor, base, "r.1.1")
    os.kill(runner_of(base, "r.1.1"), signal.SIGSTOP)
    proof = supervisor.cancel("r.1.1", 1, 0.2)
    assert (proof.state, proof.clean) == (StepState.CANCELED, True)
    assert not exists(process)
