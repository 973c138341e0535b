"""A step runs once, whoever asks how often, and its output survives broken connections byte for byte."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from activities.ssh.connection import Connection
from activities.ssh.errors import ChannelError
from activities.supervisor.client import Supervisor
from activities.supervisor.spec import StepState
from tests.ssh.conftest import Sshd
from tests.ssh.helpers import Logs, eventually, exists, finish, run, runner_of, step
from tests.ssh.relay import Relay


def test_eight_starts_over_three_connections_run_the_body_once(sshd: Sshd, base: str) -> None:
    connections = [Connection.open(sshd.target()) for _ in range(3)]
    # Installed beforehand: else each start takes three sessions, and sshd allows ten a connection.
    Supervisor(connections[0], base).facts()
    barrier = threading.Barrier(8)
    spec = step("a.1.1", f"echo run >> {base}/counter; sleep 0.3; echo out; exit 5")

    def follow(number: int) -> tuple[object, bytes]:
        logs = Logs()
        barrier.wait()
        return finish(Supervisor(connections[number % 3], base), spec, logs), bytes(logs.stdout.data)

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(follow, range(8)))
    for connection in connections:
        connection.close()
    assert Path(base, "counter").read_text() == "run\n"
    assert len({outcome for outcome, _ in results}) == 1
    assert {output for _, output in results} == {b"out\n"}


def test_a_stream_cut_in_the_middle_goes_on_byte_for_byte(
    sshd: Sshd, relay: Relay, base: str, tmp_path: Path
) -> None:
    data, errors = tmp_path / "data", tmp_path / "errors"
    data.write_bytes(os.urandom(5_000_000))
    errors.write_bytes(os.urandom(500_000))
    spec = step("a.1.1", f"cat {errors} >&2 & echo x >> {base}/counter; cat {data}; wait")
    logs, cuts = Logs(), 0
    for limit in (900_000, 2_500_000, None):
        relay.cut_after = limit
        connection = Connection.open(sshd.target(port=relay.port))
        try:
            outcome = run(Supervisor(connection, base), spec, logs)
        except ChannelError:
            cuts += 1
        finally:
            connection.close()
    assert cuts == 2
    assert outcome is not None
    assert outcome.exit_status == 0
    assert bytes(logs.stdout.data) == data.read_bytes()
    assert bytes(logs.stderr.data) == errors.read_bytes()
    assert (outcome.stdout_size, outcome.stderr_size) == (5_000_000, 500_000)
    assert Path(base, "counter").read_text() == "x\n"


def test_output_arrives_while_the_step_runs(supervisor: Supervisor, base: str) -> None:
    logs = Logs()
    spec = step("a.1.1", f"echo first; until test -e {base}/go; do sleep 0.05; done; echo second")

    def release() -> bool:
        if logs.stdout.data == b"first\n" or logs.stdout.data == b"first":
            Path(base, "go").touch()
        return False

    outcome = run(supervisor, spec, logs, should_stop=release)
    assert outcome is not None
    assert logs.stdout.data == b"first\nsecond\n"


def test_asked_to_stop_a_follower_lets_the_step_go_on(supervisor: Supervisor, base: str) -> None:
    spec = step("a.1.1", f"until test -e {base}/go; do sleep 0.05; done; echo done")
    assert run(supervisor, spec, should_stop=Path(base, "runs").exists) is None
    Path(base, "go").touch()
    logs = Logs()
    assert finish(supervisor, spec, logs).exit_status == 0
    assert logs.stdout.data == b"done\n"


def followers(base: str) -> list[str]:
    """Process ids of the shells that follow a step, its runner left out."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if len(words) > 2 and words[1].startswith(f"{base}/lib/".encode()):
            found.append(path.name)
    return found


def test_a_follower_on_the_machine_ends_with_its_channel(supervisor: Supervisor, base: str) -> None:
    spec = step("a.1.1", "sleep 60")
    stop = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        following = threads.submit(run, supervisor, spec, None, stop.is_set)
        runner = runner_of(base, "a.1.1")
        stop.set()
        assert following.result(5) is None
    # What stays is the runner and its watchdog.
    eventually(lambda: len(followers(base)) <= 2, "the follower ends", within_s=5)
    assert str(runner) in followers(base)
    assert supervisor.cancel("a.1.1", 1, 0.2).clean


def test_a_follower_ends_with_its_sshd(sshd: Sshd, base: str) -> None:
    connection = Connection.open(sshd.target())
    parent = int(connection.exec("exec ps -o ppid= -p $$").stdout)
    with ThreadPoolExecutor(1) as threads:
        following = threads.submit(run, Supervisor(connection, base), step("a.1.1", "sleep 60"))
        runner_of(base, "a.1.1")
        os.kill(parent, signal.SIGKILL)
        with pytest.raises(ChannelError):
            following.result(10)
    eventually(lambda: len(followers(base)) <= 2, "the follower ends", within_s=5)
    again = Connection.open(sshd.target())
    assert Supervisor(again, base).cancel("a.1.1", 1, 0.2).clean
    again.close()


def test_a_killed_runner_is_told_as_lost_and_its_step_can_be_ended(supervisor: Supervisor, base: str) -> None:
    spec = step("a.1.1", f"echo $$ > {base}/pid; exec sleep 60")
    with ThreadPoolExecutor(1) as threads:
        following = threads.submit(finish, supervisor, spec)
        runner = runner_of(base, "a.1.1")
        eventually(lambda: Path(base, "pid").exists(), "the body runs")
        os.kill(runner, signal.SIGKILL)
        outcome = following.result(5)
    assert (outcome.state, outcome.exit_status, outcome.clean) == (StepState.LOST, None, False)
    assert finish(supervisor, spec).state is StepState.LOST
    proof = supervisor.cancel("a.1.1", 1, 0.2)
    assert (proof.state, proof.clean) == (StepState.LOST, True)
    assert not exists(int(Path(base, "pid").read_text()))


def test_a_step_begun_in_an_earlier_boot_was_ended_by_the_reboot(supervisor: Supervisor, base: str) -> None:
    supervisor.facts()
    Path(base, "runs", "a.1.1_st").write_text(
        "started 00000000-0000-0000-0000-000000000000 1 5.0 1700000000\n"
    )
    outcome = finish(supervisor, step("a.1.1", f"touch {base}/ran"))
    assert (outcome.state, outcome.clean, outcome.started_at) == (StepState.REBOOTED, True, 1700000005.0)
    assert not Path(base, "ran").exists()
    assert supervisor.cancel("a.1.1", 1).state is StepState.REBOOTED


def test_results_and_output_stay_until_purged(supervisor: Supervisor, base: str) -> None:
    outcome = finish(supervisor, step("a.1.1", "echo kept; exit 2"))
    logs = Logs()
    begun = time.monotonic()
    assert finish(supervisor, step("a.1.1", "never run"), logs) == outcome
    assert time.monotonic() - begun < 5
    assert logs.stdout.data == b"kept\n"
    supervisor.purge()
    assert list(Path(base, "runs").iterdir()) == []


def test_a_running_step_is_not_purged(supervisor: Supervisor, base: str) -> None:
    spec = step("a.1.1", f"until test -e {base}/go; do sleep 0.05; done; exit 4")
    assert run(supervisor, spec, should_stop=lambda: Path(base, "runs", "a.1.1_st").exists()) is None
    supervisor.purge()
    Path(base, "go").touch()
    assert finish(supervisor, spec).exit_status == 4
