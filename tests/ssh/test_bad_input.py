"""Steps and machines that behave badly: each ends in a right result or in a failure with its name."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from activities.ssh.connection import Connection
from activities.supervisor.client import Supervisor
from activities.supervisor.errors import SupervisorError, TokenRefused
from activities.supervisor.spec import StepState
from tests.ssh.conftest import Sshd
from tests.ssh.helpers import Log, Logs, eventually, exists, finish, pretend, run, small_disk, step
from tests.ssh.machines import BUSYBOX, busybox_machine

_YEAR_S = 365 * 86_400
_PIDS = Path("/sys/fs/cgroup/pids")


def test_binary_output_is_kept_byte_for_byte(supervisor: Supervisor, base: str) -> None:
    supervisor.facts()
    data = (
        bytes(range(256)) * 3
        + b"\xc3(\xe2\x82\xff\xfe\0\r\n\r\0"
        + os.urandom(200_000)
        + b"\n\n#bringup \xff"
    )
    Path(base, "data").write_bytes(data)
    logs = Logs()
    assert finish(supervisor, step("a.1.1", f"cat {base}/data; cat {base}/data >&2"), logs).exit_status == 0
    assert bytes(logs.stdout.data) == data
    assert bytes(logs.stderr.data) == data


def test_a_body_that_is_not_text_is_carried_as_it_is(supervisor: Supervisor) -> None:
    logs = Logs()
    body = b"#!/usr/bin/env -S perl -w\nprint length(<<'X');\n\xff\xfe\x80\nX\n"
    assert finish(supervisor, step("a.1.1", body), logs).exit_status == 0
    assert bytes(logs.stdout.data) == b"4"


def test_a_step_that_closes_its_output_goes_on(supervisor: Supervisor, base: str) -> None:
    logs = Logs()
    body = f"echo before; exec >&- 2>&-; sleep 0.3; echo unheard; touch {base}/after; exit 3"
    outcome = finish(supervisor, step("a.1.1", body), logs)
    assert (outcome.state, outcome.exit_status) == (StepState.EXITED, 3)
    assert bytes(logs.stdout.data) == b"before\n"
    assert Path(base, "after").exists()


def test_a_step_that_kills_the_shell_that_runs_it_says_the_signal(supervisor: Supervisor) -> None:
    outcome = finish(supervisor, step("a.1.1", "echo said; kill -9 $$; echo never"))
    assert (outcome.state, outcome.exit_status, outcome.signal) == (StepState.EXITED, 137, 9)
    assert outcome.stdout_size == len("said\n")


def test_a_step_that_kills_its_runner_is_lost_and_ended_with_proof(supervisor: Supervisor, base: str) -> None:
    body = f"echo $$ > {base}/pid; kill -9 $PPID; exec sleep 300"
    assert finish(supervisor, step("a.1.1", body)).state is StepState.LOST
    proof = supervisor.cancel("a.1.1", 1, 0.2)
    assert (proof.state, proof.clean) == (StepState.LOST, True)
    assert not exists(int(Path(base, "pid").read_text()))


def test_a_step_whose_output_fills_the_disk_fails_with_all_that_fitted(
    supervisor: Supervisor, base: str
) -> None:
    with small_disk(base, "1m"):
        logs = Logs()
        outcome = finish(supervisor, step("a.1.1", "cat /dev/zero"), logs)
        assert (outcome.state, outcome.exit_status) == (StepState.EXITED, 1)
        assert logs.stdout.size == outcome.stdout_size > 500_000
        with pytest.raises(SupervisorError) as caught:
            finish(supervisor, step("b.1.1", "true", environment={"BIG": "x" * 20_000}))
        assert caught.value.failure_class == "no-space"


def test_a_step_on_a_full_disk_can_be_canceled(supervisor: Supervisor, base: str) -> None:
    with small_disk(base, "1m"):
        spec = step("a.1.1", f"trap '' TERM; cat /dev/zero > {base}/fill; mkdir {base}/full; exec sleep 300")
        assert run(supervisor, spec, should_stop=Path(base, "full").exists) is None
        proof = supervisor.cancel("a.1.1", 1, 0.2)
        assert (proof.state, proof.clean) == (StepState.CANCELED, True)
        assert finish(supervisor, spec).state is StepState.CANCELED


def test_a_token_is_not_raised_on_a_full_disk(supervisor: Supervisor, base: str) -> None:
    with small_disk(base, "1m"):
        supervisor.raise_token(1)
        assert subprocess.run(
            ["sh", "-c", f"cat /dev/zero > {base}/fill"], check=False, stderr=subprocess.DEVNULL
        ).returncode
        with pytest.raises(SupervisorError, match="No space left") as caught:
            supervisor.raise_token(2)
        assert caught.value.failure_class == "no-space"
        Path(base, "fill").unlink()
        supervisor.raise_token(2)
        with pytest.raises(TokenRefused):
            supervisor.cancel("a.1.1", 1)


@pytest.fixture
def few_processes(base: str) -> Iterator[Path]:
    """A group that bounds what a fork storm can do to this machine."""
    if not (_PIDS / "cgroup.procs").exists():
        pytest.skip("no pids controller of cgroup v1 here")
    group = _PIDS / Path(base).name
    group.mkdir()
    (group / "pids.max").write_text("64")
    yield group
    for pid in (group / "cgroup.procs").read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    eventually(lambda: (group / "cgroup.procs").read_text() == "", "the group is empty")
    group.rmdir()


STORM = """#!/usr/bin/env python3
import os, signal, time
with open("{group}/cgroup.procs", "w") as group:
    group.write(str(os.getpid()))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        time.sleep(0.1)
"""


@pytest.mark.parametrize("way", ["cgroup", "perl:157", "python3"])
def test_a_fork_storm_is_ended_by_the_time_limit(
    supervisor: Supervisor, base: str, few_processes: Path, way: str
) -> None:
    facts = supervisor.facts()
    if way == "cgroup" and facts.containment != "cgroup":
        pytest.skip("no writable cgroup2 here")
    if way.startswith("perl") and facts.architecture != "x86_64":
        pytest.skip("the system call number is x86_64's")
    if way != "cgroup":
        pretend(base, way=way)
    body = STORM.format(group=few_processes)
    outcome = finish(supervisor, step("a.1.1", body, timeout_s=2), grace_s=0.2)
    assert (outcome.state, outcome.clean) == (StepState.TIMED_OUT, True)
    assert not any(exists(int(pid)) for pid in (few_processes / "cgroup.procs").read_text().split())
    assert "max 0" not in (few_processes / "pids.events").read_text(), "the storm met its bound"


def test_a_daemon_that_keeps_the_output_open_is_not_waited_for(supervisor: Supervisor, base: str) -> None:
    logs = Logs()
    body = f"(until test -e {base}/stop; do echo tick; sleep 0.05; done) & echo $! > {base}/pid; echo done"
    begun = time.monotonic()
    outcome = finish(supervisor, step("a.1.1", body), logs)
    assert time.monotonic() - begun < 10
    assert (outcome.exit_status, outcome.stdout_size) == (0, logs.stdout.size)
    assert b"done\n" in logs.stdout.data
    assert exists(int(Path(base, "pid").read_text())), "the daemon lives on"
    Path(base, "stop").touch()


class _SlowLog(Log):
    """A reader that a busy writer outruns: 4 MB/s at best."""

    def take(self, offset: int, data: bytes) -> None:
        super().take(offset, data)
        time.sleep(len(data) / 4_000_000)


def test_a_daemon_that_prints_without_end_does_not_hold_the_result_up(
    supervisor: Supervisor, base: str
) -> None:
    flood = f"until test -e {base}/stop; do head -c 100000 /dev/zero; sleep 0.01; done"
    logs = Logs(stdout=_SlowLog())
    try:
        outcome = finish(supervisor, step("a.1.1", f"({flood}) & sleep 0.5; exit 3"), logs)
    finally:
        Path(base, "stop").touch()
    assert (outcome.exit_status, outcome.stdout_size) == (3, logs.stdout.size)


def test_more_output_than_one_copy_takes_is_complete(supervisor: Supervisor) -> None:
    logs = Logs()
    outcome = finish(supervisor, step("a.1.1", "head -c 40000000 /dev/zero"), logs)
    assert outcome.stdout_size == logs.stdout.size == 40_000_000


A_YEAR_AHEAD = f"""#!/bin/sh
[ "$*" = +%s ] || exit 1
echo $(($(busybox date +%s) + {_YEAR_S}))
"""


@pytest.mark.skipif(not BUSYBOX.exists(), reason="needs busybox")
def test_a_clock_that_is_a_year_off_shifts_the_times_and_nothing_else(
    sshd: Sshd, tmp_path: Path, base: str
) -> None:
    with (
        busybox_machine(
            sshd, tmp_path / "root", programs=["sh", "flock"], files={"usr/bin/date": A_YEAR_AHEAD}
        ) as target,
        closing(Connection.open(target)) as connection,
    ):
        supervisor = Supervisor(connection, base)
        outcome = finish(supervisor, step("a.1.1", "sleep 0.2; exit 3"))
        assert outcome.started_at is not None
        assert outcome.ended_at is not None
        assert abs(outcome.started_at - _YEAR_S - time.time()) < 60
        assert 0.2 <= outcome.ended_at - outcome.started_at < 10
        assert (outcome.state, outcome.exit_status) == (StepState.EXITED, 3)
        assert finish(supervisor, step("a.1.1", "never run")) == outcome
        assert finish(supervisor, step("b.1.1", "sleep 60", timeout_s=1)).state is StepState.TIMED_OUT
        supervisor.raise_token(2)
        assert finish(supervisor, step("a.1.1", "never run", token=2)) == outcome


@pytest.mark.skipif(not BUSYBOX.exists(), reason="needs busybox")
def test_a_login_profile_that_prints_is_not_the_steps(sshd: Sshd, tmp_path: Path, base: str) -> None:
    profile = "echo Welcome to the machine; printf 'no end of line and \\377' >&2\n"
    with (
        busybox_machine(
            sshd, tmp_path / "root", programs=["flock"], files={"etc/profile": profile}
        ) as target,
        closing(Connection.open(target)) as connection,
    ):
        assert b"Welcome" in connection.exec("true").stdout
        supervisor = Supervisor(connection, base)
        logs = Logs()
        outcome = finish(
            supervisor, step("a.1.1", "echo out; echo err >&2; echo v=1 > $BRINGUP_OUTPUT"), logs
        )
        assert (outcome.exit_status, bytes(logs.stdout.data), bytes(logs.stderr.data)) == (
            0,
            b"out\n",
            b"err\n",
        )
        assert supervisor.output("a.1.1") == b"v=1\n"
        assert supervisor.facts().architecture == os.uname()[4]
