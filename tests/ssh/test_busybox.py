"""A machine whose shell and commands are busybox's, with each way of locking files that it may have."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from activities.ssh.connection import Connection
from activities.ssh.errors import ChannelError
from activities.ssh.target import SshTarget
from activities.supervisor.client import Supervisor
from activities.supervisor.errors import SupervisorError, TokenRefused
from activities.supervisor.spec import StepState
from tests.ssh.conftest import Sshd
from tests.ssh.helpers import Logs, finish, run, small_disk, step
from tests.ssh.machines import BUSYBOX, busybox_machine
from tests.ssh.relay import Relay

pytestmark = pytest.mark.skipif(not BUSYBOX.exists(), reason="needs busybox")

# As other builds of busybox have it: no -w, and 1 for whatever goes wrong.
FLOCK_THAT_CANNOT_WAIT = """#!/bin/sh
case "$*" in *-w*) echo "flock: invalid option -- 'w'" >&2; exit 1 ;; esac
exec /opt/flock "$@"
"""


@pytest.fixture(params=["flock", "poll", "perl", "python3"])
def machine(request: pytest.FixtureRequest, sshd: Sshd, tmp_path: Path, base: str) -> Iterator[SshTarget]:
    """One with only that way of locking, which is checked."""
    polls = request.param == "poll"
    programs = ["/opt/flock"] if polls else [request.param]
    files = {"usr/bin/flock": FLOCK_THAT_CANNOT_WAIT} if polls else {}
    with busybox_machine(sshd, tmp_path / "root", programs=programs, files=files) as target:
        with closing(Connection.open(target)) as connection:
            Supervisor(connection, base).facts()
        assert Path(base, "way").read_text().splitlines()[1] == request.param
        yield target


@pytest.fixture
def supervisor(machine: SshTarget, base: str) -> Iterator[Supervisor]:
    with closing(Connection.open(machine)) as connection:
        yield Supervisor(connection, base)


def test_a_step_is_checked_run_and_verified(supervisor: Supervisor, base: str) -> None:
    logs = Logs()
    body = f"readlink /proc/$$/exe; echo err >&2; echo v=1 > $BRINGUP_OUTPUT; touch {base}/done"
    spec = step("a.1.1", body, check=f"test -e {base}/done", environment={"A": "it's ünïcode"})
    outcome = finish(supervisor, spec, logs)
    assert (outcome.state, outcome.exit_status, outcome.outcome) == (StepState.EXITED, 0, "changed")
    assert (bytes(logs.stdout.data), bytes(logs.stderr.data)) == (b"/usr/bin/busybox\n", b"err\n")
    assert supervisor.output("a.1.1") == b"v=1\n"
    assert finish(supervisor, step("b.1.1", "exit 5", check=f"test -e {base}/done")).outcome == "no-change"
    assert finish(supervisor, step("c.1.1", "exit 5")).exit_status == 5


def test_eight_starts_over_two_connections_run_the_body_once(machine: SshTarget, base: str) -> None:
    connections = [Connection.open(machine) for _ in range(2)]
    barrier = threading.Barrier(8)
    spec = step("a.1.1", f"echo run >> {base}/counter; sleep 0.3; echo out; exit 5")

    def follow(number: int) -> tuple[object, bytes]:
        logs = Logs()
        barrier.wait()
        return finish(Supervisor(connections[number % 2], base), spec, logs), bytes(logs.stdout.data)

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(follow, range(8)))
    for connection in connections:
        connection.close()
    assert Path(base, "counter").read_text() == "run\n"
    assert len({outcome for outcome, _ in results}) == 1
    assert {output for _, output in results} == {b"out\n"}


def test_a_cut_stream_goes_on_byte_for_byte(machine: SshTarget, relay: Relay, base: str) -> None:
    data = os.urandom(1_500_000)
    Path(base, "data").write_bytes(data)
    spec = step("a.1.1", f"echo x >> {base}/counter; cat {base}/data")
    logs, cuts, outcome = Logs(), 0, None
    for limit in (400_000, None):
        relay.cut_after = limit
        try:
            with closing(Connection.open(replace(machine, port=relay.port))) as connection:
                outcome = run(Supervisor(connection, base), spec, logs)
        except ChannelError:
            cuts += 1
    assert cuts == 1
    assert outcome is not None
    assert (outcome.exit_status, bytes(logs.stdout.data) == data) == (0, True)
    assert Path(base, "counter").read_text() == "x\n"


def test_the_time_limit_is_kept(supervisor: Supervisor) -> None:
    outcome = finish(
        supervisor, step("a.1.1", "trap '' TERM; while :; do sleep 1; done", timeout_s=1), None, 0.2
    )
    assert outcome.state is StepState.TIMED_OUT
    assert outcome.started_at is not None
    assert outcome.ended_at is not None
    assert 1 <= outcome.ended_at - outcome.started_at < 5


def test_a_higher_token_ends_the_steps_of_lower_ones(supervisor: Supervisor, base: str) -> None:
    spec = step("a.1.1", f"echo $$ > {base}/pid; exec sleep 300", token=1)
    assert run(supervisor, spec, should_stop=Path(base, "pid").exists) is None
    supervisor.raise_token(2, grace_s=0.2)
    with pytest.raises(TokenRefused):
        finish(supervisor, spec)
    assert finish(supervisor, step("a.1.1", "true", token=2)).state is StepState.CANCELED


def test_a_full_disk_is_told_and_runs_nothing(sshd: Sshd, tmp_path: Path, base: str) -> None:
    with (
        small_disk(base, "256k"),
        busybox_machine(sshd, tmp_path / "root", programs=["perl"]) as target,
        closing(Connection.open(target)) as connection,
    ):
        supervisor = Supervisor(connection, base)
        finish(supervisor, step("a.1.1", "true"))
        with pytest.raises(SupervisorError, match="No space left") as caught:
            finish(supervisor, step("b.1.1", f"touch {base}/ran\n" + "#" * 300_000))
        assert caught.value.failure_class == "no-space"
        assert not Path(base, "ran").exists()


def test_a_machine_that_cannot_lock_is_refused_by_name(sshd: Sshd, tmp_path: Path, base: str) -> None:
    with (
        busybox_machine(sshd, tmp_path / "root") as target,
        closing(Connection.open(target)) as connection,
        pytest.raises(SupervisorError, match="none of flock, perl and python3 works") as caught,
    ):
        Supervisor(connection, base).facts()
    assert caught.value.failure_class == "health"
