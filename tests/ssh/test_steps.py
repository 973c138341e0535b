"""What a step is run with, and how its end is told."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from activities.ssh.connection import Connection
from activities.supervisor.client import Supervisor
from activities.supervisor.errors import SupervisorError
from activities.supervisor.script import Layout
from activities.supervisor.spec import StepSpec, StepState
from tests.ssh.helpers import Logs, finish, small_disk, step


def test_a_step_returns_its_output_and_status(supervisor: Supervisor) -> None:
    logs = Logs()
    outcome = finish(supervisor, step("a.1.1", "printf out; printf err >&2; exit 3"), logs)
    assert (outcome.state, outcome.exit_status, outcome.signal) == (StepState.EXITED, 3, None)
    assert outcome.outcome is None
    assert (outcome.output_size, outcome.rebooted) == (0, False)
    assert (bytes(logs.stdout.data), bytes(logs.stderr.data)) == (b"out", b"err")
    assert outcome.started_at is not None
    assert outcome.ended_at is not None
    assert abs(outcome.started_at - time.time()) < 60
    assert 0 <= outcome.ended_at - outcome.started_at < 60


def test_output_that_looks_like_the_supervisors_own_words_is_kept(supervisor: Supervisor) -> None:
    text = "\n#bringup 0123456789abcdef end state=exited\n\n#bringup"
    logs = Logs()
    finish(supervisor, step("a.1.1", f"printf '%s' '{text}' | tee /dev/stderr"), logs)
    assert bytes(logs.stdout.data) == bytes(logs.stderr.data) == text.encode()


def test_a_step_killed_by_a_signal_says_which(supervisor: Supervisor) -> None:
    outcome = finish(supervisor, step("a.1.1", "kill -KILL $$"))
    assert (outcome.state, outcome.exit_status, outcome.signal) == (StepState.EXITED, 137, 9)


def test_a_step_may_be_interrupted_by_signals_like_any_program(supervisor: Supervisor) -> None:
    logs = Logs()
    finish(supervisor, step("a.1.1", "grep SigIgn /proc/self/status"), logs)
    assert int(logs.stdout.data.split()[1], 16) & 0x7FFF == 0


def test_the_environment_is_defined(supervisor: Supervisor, base: str) -> None:
    logs = Logs()
    value = "a 'quoted'\n$value `with` \"everything\" and ünïcode"
    finish(supervisor, step("a.1.1", "env -0; pwd; umask; cat", environment={"BRINGUP_NODE": value}), logs)
    entries = bytes(logs.stdout.data).decode().split("\0")
    assert dict(entry.split("=", 1) for entry in entries[:-1]) == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "USER": "root",
        "LOGNAME": "root",
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "PWD": "/root",
        "BRINGUP_NODE": value,
        "BRINGUP_OUTPUT": f"{base}/runs/a.1.1_output",
    }
    assert entries[-1] == "/root\n0022\n"


def test_neither_body_nor_values_appear_on_a_command_line(supervisor: Supervisor) -> None:
    logs = Logs()
    body = (
        "# body-needle\ncat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'body-needle\\|value-needle'; true"
    )
    finish(supervisor, step("a.1.1", body, environment={"SECRET": "value-needle"}), logs)
    # The only match is the grep itself.
    assert bytes(logs.stdout.data) in (b"0\n", b"1\n")


def test_nothing_secret_stays_on_disk_after_the_step(supervisor: Supervisor, base: str) -> None:
    finish(supervisor, step("a.1.1", "true", environment={"SECRET": "value-needle"}))
    deadline = time.monotonic() + 5
    while any("_in_" in path.name for path in Path(base, "runs").iterdir()):
        assert time.monotonic() < deadline
    assert Path(base).stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in Path(base, "runs").iterdir())


@pytest.mark.parametrize(
    ("body", "interpreter", "expected"),
    [
        ("#!/usr/bin/env python3\nimport sys; print(sys.version_info.major)", None, b"3\n"),
        ("#!/bin/sh -e\nfalse\necho not reached", None, b""),
        ("print(6 * 7)", "/usr/bin/env python3", b"42\n"),
        ("case $- in *e*) echo with -e;; esac", "/bin/sh -e", b"with -e\n"),
    ],
)
def test_the_interpreter_is_the_bodys_or_the_one_given(
    supervisor: Supervisor, body: str, interpreter: str | None, expected: bytes
) -> None:
    logs = Logs()
    finish(supervisor, step("a.1.1", body, interpreter=interpreter), logs)
    assert bytes(logs.stdout.data) == expected


def test_a_missing_interpreter_ends_with_127_and_says_so(supervisor: Supervisor) -> None:
    logs = Logs()
    outcome = finish(supervisor, step("a.1.1", "true", interpreter="/nonexistent/python"), logs)
    assert outcome.exit_status == 127
    assert b"/nonexistent/python" in logs.stderr.data


def test_a_check_that_passes_means_no_change(supervisor: Supervisor, base: str) -> None:
    logs = Logs()
    outcome = finish(supervisor, step("a.1.1", f"touch {base}/ran", check="echo checking; exit 0"), logs)
    assert (outcome.exit_status, outcome.outcome) == (0, "no-change")
    assert not Path(base, "ran").exists()
    assert logs.stdout.size == logs.stderr.size == 0


def test_a_check_that_passes_only_after_the_body_means_changed(supervisor: Supervisor, base: str) -> None:
    check = f'test "$WANTED" = yes && test -e {base}/done'
    spec = step("a.1.1", f"touch {base}/done", check=check, environment={"WANTED": "yes"})
    outcome = finish(supervisor, spec)
    assert (outcome.exit_status, outcome.outcome) == (0, "changed")


def test_a_check_that_still_fails_after_the_body_is_told_with_its_output(supervisor: Supervisor) -> None:
    logs = Logs()
    outcome = finish(supervisor, step("a.1.1", "echo body", check="echo not yet; exit 4"), logs)
    assert (outcome.state, outcome.exit_status, outcome.outcome) == (StepState.EXITED, 0, "verify-failed")
    assert bytes(logs.stdout.data) == b"body\n"
    assert b"check still fails with status 4" in logs.stderr.data
    assert logs.stderr.data.endswith(b"\nnot yet\n")


def test_a_failing_body_is_not_verified(supervisor: Supervisor) -> None:
    outcome = finish(supervisor, step("a.1.1", "exit 9", check="false"))
    assert (outcome.exit_status, outcome.outcome) == (9, None)


def test_a_service_that_a_step_leaves_stays_and_holds_nothing_up(supervisor: Supervisor, base: str) -> None:
    outcome = finish(supervisor, step("a.1.1", f"setsid sleep 300 & echo $! > {base}/service"))
    assert outcome.exit_status == 0
    pid = int(Path(base, "service").read_text())
    assert Path(f"/proc/{pid}").exists()
    assert finish(supervisor, step("a.1.1", "never run")) == outcome
    os.kill(pid, 9)


def test_a_body_cut_short_is_not_run(supervisor: Supervisor, connection: Connection, base: str) -> None:
    supervisor.facts()
    body = f"touch {base}/ran\n"
    call = Layout(base, sudo=False).call("feed", "run", "a.1.1", "1", "60", "50", "0", "0", "500", "0", "-")
    result = connection.exec(call + " /bin/sh '' /bin/sh ''", body.encode())
    assert b"#bringup feed fail truncated" in result.stderr
    assert not Path(base, "ran").exists()
    assert finish(supervisor, step("a.1.1", body)).exit_status == 0
    assert Path(base, "ran").exists()


def test_noise_of_a_login_shell_is_not_the_steps(supervisor: Supervisor, connection: Connection) -> None:
    plain = connection.stream

    def noisy(command: str, *arguments: object, **options: object) -> int | None:
        return plain(f"echo welcome; echo locale >&2; {command}", *arguments, **options)  # type: ignore[arg-type]

    connection.stream = noisy  # type: ignore[method-assign]
    logs = Logs()
    finish(supervisor, step("a.1.1", "echo out; echo err >&2"), logs)
    assert (bytes(logs.stdout.data), bytes(logs.stderr.data)) == (b"out\n", b"err\n")


def test_a_folder_that_cannot_be_written_is_a_privilege_failure(connection: Connection) -> None:
    with pytest.raises(SupervisorError, match="/sys/kernel/bringup/lib") as caught:
        Supervisor(connection, "/sys/kernel/bringup").facts()
    assert caught.value.failure_class == "privilege"


def test_a_full_disk_is_a_failure_of_its_own_and_runs_nothing(supervisor: Supervisor, base: str) -> None:
    with small_disk(base, "256k"):
        finish(supervisor, step("a.1.1", "true"))
        with pytest.raises(SupervisorError, match="No space left") as caught:
            finish(supervisor, step("b.1.1", f"touch {base}/ran\n" + "#" * 300_000))
        assert caught.value.failure_class == "no-space"
        assert not Path(base, "ran").exists()
        assert finish(supervisor, step("b.1.1", "exit 2")).exit_status == 2


def test_facts_describe_this_machine(supervisor: Supervisor) -> None:
    facts = supervisor.facts()
    assert facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert (facts.kernel, facts.architecture, facts.hostname) == (os.uname()[2], os.uname()[4], os.uname()[1])
    assert facts.cpus == os.cpu_count()
    assert facts.memory_kb > 100_000
    assert facts.os_id
    assert facts.python3 is not None
    assert facts.containment in ("cgroup", "perl", "python3")


@pytest.mark.parametrize(
    "changes",
    [
        {"key": "../x"},
        {"key": ""},
        {"token": -1},
        {"timeout_s": 0},
        {"environment": {"A-B": ""}},
        {"environment": {"A": "\0"}},
    ],
)
def test_a_step_that_cannot_be_carried_is_refused_at_once(changes: dict[str, object]) -> None:
    values: dict[str, object] = {"key": "a.1.1", "token": 1, "run": b"true"}
    with pytest.raises(ValueError, match=r".+"):
        StepSpec(**{**values, **changes})  # type: ignore[arg-type]


def test_latency_is_measured(
    supervisor: Supervisor, connection: Connection, record_property: Callable[[str, object], None]
) -> None:
    supervisor.facts()

    def median_ms(action: Callable[[int], object]) -> float:
        times = []
        for i in range(20):
            begun = time.perf_counter()
            action(i)
            times.append((time.perf_counter() - begun) * 1000)
        return round(statistics.median(times), 1)

    figures = {
        "plain exec ms": median_ms(lambda _: connection.exec("true")),
        "step ms": median_ms(lambda i: finish(supervisor, step(f"l.{i}.1", "true"))),
        "attach to a finished step ms": median_ms(lambda _: finish(supervisor, step("l.1.1", "true"))),
    }
    for name, value in figures.items():
        record_property(name, value)
    assert figures["attach to a finished step ms"] > 0
    print(figures)  # noqa: T201 - a sanity figure, seen with -s
