"""The Linux baseline on a real machine: it does what it says, and a second run finds nothing to do."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from profiles.builtin import builtin_profiles
from profiles.compiling import compile_plan
from profiles.content import Phase
from profiles.plan import Plan
from tests.fixtures.sandbox_machine import Machine, sandbox_machine

pytestmark = pytest.mark.system

RUN_A_JOB = """\
set -eu
mkdir -p '/scratch/a b/c'
echo data > '/scratch/a b/c/file'
setpriv --reuid bringup-jobs --regid bringup-jobs --clear-groups sh -c '
    touch /tmp/left-by-job /var/lib/bringup-jobs/notes
    echo own > /scratch/own
    setsid sleep 4711 >/dev/null 2>&1 &
    (trap "" TERM; while :; do sleep 4712 & wait; done) >/dev/null 2>&1 &'
echo kept > /tmp/left-by-root
"""
LEFT_OF_THE_JOB = """\
ls -A /scratch /var/lib/bringup-jobs
for word in 4711 4712; do grep -lsz "^$word$" /proc/[0-9]*/cmdline; done
ls /tmp
"""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with sandbox_machine(tmp_path, "baseline") as made:
        yield made


def _plan(phase: Phase, hostname: str | None = None) -> Plan:
    (baseline,) = (profile for profile in builtin_profiles() if profile.name == "linux-baseline")
    number, content = max(baseline.versions.items())
    reference = f"builtin/linux-baseline@{number}"
    return compile_plan(content, profile=reference, content_digest="-", phase=phase, hostname=hostname)


def _run(machine: Machine, plan: Plan) -> list[str]:
    """Runs what is not done yet, as the platform does; returns the names of the steps that ran."""
    ran = []
    for step in plan.steps:
        if not machine.done(step):
            machine.apply(step)
            ran.append(step.name)
            assert machine.done(step), f"{step.name} ran, but its check still fails"
    return ran


def test_the_baseline_is_applied_once_and_found_done_the_second_time(machine: Machine) -> None:
    plan = _plan(Phase.CREATE, "gpu-7.example")
    ran = _run(machine, plan)
    assert {"hostname", "kernel-settings", "limits", "job-user", "scratch", "release-file"} <= set(ran)
    assert _run(machine, plan) == []

    seen = machine.shell(
        "uname -n; cat /etc/hostname; getent hosts gpu-7 | grep -c 'gpu-7[.]example'; date +%Z\n"
        "cat /proc/sys/vm/swappiness; stat -c %a /scratch; cat /etc/bringup/release; id -un bringup-jobs"
    )
    assert seen.stdout.split() == [
        *["gpu-7.example", "gpu-7.example", "1", "UTC"],
        *["10", "1777", "builtin/linux-baseline@1", "bringup-jobs"],
    ]


def test_another_name_replaces_the_first_and_keeps_the_hosts_files_other_lines(machine: Machine) -> None:
    before = machine.shell("cat /etc/hosts").stdout
    for name in ("first", "second.example"):
        (step, *_) = _plan(Phase.CREATE, name).steps
        machine.apply(step)
        assert machine.done(step)
    assert machine.shell("cat /etc/hosts").stdout == (
        before + "127.0.1.1 second.example second # bringup: hostname\n"
    )


def test_terminate_ends_the_jobs_and_removes_what_they_left(machine: Machine) -> None:
    _run(machine, _plan(Phase.CREATE))
    assert machine.shell(RUN_A_JOB).returncode == 0
    busy = machine.shell(LEFT_OF_THE_JOB).stdout
    assert "a b" in busy
    assert "/cmdline" in busy

    assert _run(machine, _plan(Phase.TERMINATE)) == ["stop-jobs", "clear-scratch"]
    assert _run(machine, _plan(Phase.TERMINATE)) == []
    left = machine.shell(LEFT_OF_THE_JOB).stdout.split()
    assert left == ["/scratch:", "/var/lib/bringup-jobs:", "left-by-root"]


def test_terminate_of_a_machine_that_never_got_the_baseline_has_nothing_to_do(machine: Machine) -> None:
    assert _run(machine, _plan(Phase.TERMINATE)) == []


def test_a_kernel_that_cannot_be_set_gets_the_file_for_its_next_boot(machine: Machine) -> None:
    frozen = machine.shell("mount -o remount,bind,ro /proc/sys/vm && cat /proc/sys/vm/swappiness")
    assert frozen.returncode == 0, frozen.stderr
    (step,) = (step for step in _plan(Phase.CREATE).steps if step.name == "kernel-settings")
    assert f"vm.swappiness is read-only here and stays {frozen.stdout.strip()}" in machine.apply(step)
    assert machine.done(step)
    assert "vm.swappiness = 10" in machine.shell("cat /etc/sysctl.d/90-bringup.conf").stdout
