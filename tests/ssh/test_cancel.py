"""A step that must end does end, all of it, with proof: by cgroup, or by a child subreaper without one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from activities.ssh.connection import Connection
from activities.ssh.target import SshTarget
from activities.supervisor.client import Supervisor
from activities.supervisor.spec import StepState
from tests.ssh.conftest import Sshd
from tests.ssh.helpers import Logs, eventually, exists, finish, pretend, run, step
from tests.ssh.machines import BUSYBOX, busybox_machine

# Each writes the process id of what must not survive to $PID, and then lasts for minutes.
ESCAPES = {
    "plain": "echo $$ > $PID; exec sleep 300",
    "TERM ignored": "trap '' TERM; echo $$ > $PID; while :; do sleep 1; done",
    "double fork with setsid": (
        "setsid sh -c 'trap \"\" TERM; (sleep 300 & echo $! > $PID) & wait' & sleep 300"
    ),
    "double fork without environment": (
        'env -i setsid sh -c \'(trap "" TERM; sh -c "echo \\$\\$ > $0; exec sleep 300" &) &\' $PID; sleep 300'
    ),
    "stopped": "echo $$ > $PID; kill -STOP $$; sleep 300",
}
WAYS = ["cgroup", "perl:157", "python3", "busybox cgroup", "busybox perl:157", "busybox python3"]


@pytest.fixture(params=WAYS)
def contained(
    request: pytest.FixtureRequest, sshd: Sshd, target: SshTarget, tmp_path: Path, base: str
) -> Iterator[Supervisor]:
    """The supervisor with one way of finding a step's processes, as if the machine had only that."""
    make, _, way = request.param.rpartition(" ")
    with ExitStack() as stack:
        if make == "busybox":
            if not BUSYBOX.exists():
                pytest.skip("needs busybox")
            programs = ["python3" if way == "python3" else "perl"]
            target = stack.enter_context(busybox_machine(sshd, tmp_path / "root", programs=programs))
        connection = stack.enter_context(closing(Connection.open(target)))
        supervisor = Supervisor(connection, base)
        facts = supervisor.facts()
        if way == "cgroup" and facts.containment != "cgroup":
            pytest.skip("no writable cgroup2 here")
        if way.startswith("perl") and facts.architecture != "x86_64":
            pytest.skip("the system call number is x86_64's")
        if way != "cgroup":
            pretend(base, way=way)
        yield supervisor


def pid_in(path: Path) -> int:
    eventually(lambda: path.exists() and path.read_text().endswith("\n"), "the step tells its process id")
    return int(path.read_text())


@pytest.mark.parametrize("escape", ESCAPES)
def test_cancel_ends_all_of_a_step(contained: Supervisor, base: str, escape: str) -> None:
    spec = step("a.1.1", ESCAPES[escape], environment={"PID": f"{base}/pid"})
    with ThreadPoolExecutor(1) as threads:
        following = threads.submit(finish, contained, spec)
        pid = pid_in(Path(base, "pid"))
        proof = contained.cancel("a.1.1", 1, grace_s=0.3)
        outcome = following.result(5)
    assert (proof.state, proof.clean) == (StepState.CANCELED, True)
    assert (outcome.state, outcome.exit_status, outcome.clean) == (StepState.CANCELED, None, True)
    assert not exists(pid)


@pytest.mark.parametrize("escape", ESCAPES)
def test_the_time_limit_ends_all_of_a_step(contained: Supervisor, base: str, escape: str) -> None:
    spec = step("a.1.1", ESCAPES[escape], environment={"PID": f"{base}/pid"}, timeout_s=1)
    outcome = finish(contained, spec, grace_s=0.3)
    pid = pid_in(Path(base, "pid"))
    assert (outcome.state, outcome.exit_status, outcome.clean) == (StepState.TIMED_OUT, None, True)
    assert not exists(pid)


def test_the_time_limit_holds_without_anyone_following(contained: Supervisor, base: str) -> None:
    spec = step("a.1.1", f"echo $$ > {base}/pid; exec sleep 300", timeout_s=1)
    assert run(contained, spec, should_stop=Path(base, "pid").exists) is None
    pid = pid_in(Path(base, "pid"))
    eventually(lambda: not exists(pid), "the machine ends the step by itself")
    assert finish(contained, spec).state is StepState.TIMED_OUT


def test_a_step_ended_by_term_has_its_grace(contained: Supervisor, base: str) -> None:
    body = f"trap 'echo tidied; exit 0' TERM; echo $$ > {base}/pid; while :; do sleep 0.05; done"
    logs = Logs()
    with ThreadPoolExecutor(1) as threads:
        following = threads.submit(finish, contained, step("a.1.1", body), logs)
        pid_in(Path(base, "pid"))
        assert contained.cancel("a.1.1", 1, grace_s=5).clean
        assert following.result(5).state is StepState.CANCELED
    assert logs.stdout.data == b"tidied\n"


def test_a_step_runs_as_usual_with_any_way_of_containment(contained: Supervisor) -> None:
    logs = Logs()
    outcome = finish(contained, step("a.1.1", "echo out; exit 3", check="false"), logs)
    assert (outcome.exit_status, outcome.outcome, bytes(logs.stdout.data)) == (3, None, b"out\n")


def test_a_fork_storm_is_ended(contained: Supervisor, base: str) -> None:
    storm = "while :; do (sleep 2 &); sleep 0.02; done"
    body = f"trap '' TERM\necho $$ > {base}/pid\nfor i in 1 2 3 4; do ({storm}) & done\nwait"
    spec = step("a.1.1", body)
    assert run(contained, spec, should_stop=Path(base, "pid").exists) is None
    assert contained.cancel("a.1.1", 1, grace_s=0.2).clean
    assert finish(contained, spec).clean


def test_a_step_canceled_before_its_start_never_starts(supervisor: Supervisor, base: str) -> None:
    proof = supervisor.cancel("a.1.1", 1)
    assert (proof.state, proof.clean) == (StepState.CANCELED, True)
    outcome = finish(supervisor, step("a.1.1", f"touch {base}/ran"))
    assert (outcome.state, outcome.clean) == (StepState.CANCELED, True)
    assert not Path(base, "ran").exists()


def test_canceling_a_step_that_has_ended_tells_its_end(supervisor: Supervisor) -> None:
    finish(supervisor, step("a.1.1", "exit 6"))
    assert supervisor.cancel("a.1.1", 1).state is StepState.EXITED
    assert finish(supervisor, step("a.1.1", "exit 6")).exit_status == 6


def test_canceling_twice_gives_the_same_proof(supervisor: Supervisor, base: str) -> None:
    spec = step("a.1.1", f"echo $$ > {base}/pid; exec sleep 300")
    assert run(supervisor, spec, should_stop=Path(base, "pid").exists) is None
    assert supervisor.cancel("a.1.1", 1, 0.2) == supervisor.cancel("a.1.1", 1, 0.2)
