"""What a step leaves for others: named outputs, and the word for what it did."""

from __future__ import annotations

from pathlib import Path

import pytest

from activities.supervisor.client import Supervisor
from activities.supervisor.errors import SupervisorError
from activities.supervisor.spec import StepState
from tests.ssh.helpers import finish, step


def test_a_step_leaves_outputs_that_stay_with_its_result(supervisor: Supervisor, base: str) -> None:
    spec = step("a.1.1", r"printf 'driver=535\nraw=\377\000' >> $BRINGUP_OUTPUT")
    outcome = finish(supervisor, spec)
    assert outcome.output_size == 17
    assert supervisor.output("a.1.1") == b"driver=535\nraw=\xff\x00"
    assert finish(supervisor, spec) == outcome
    assert Path(base, "runs", "a.1.1_output").stat().st_mode & 0o777 == 0o600


def test_every_attempt_begins_with_an_empty_output(supervisor: Supervisor) -> None:
    finish(supervisor, step("a.1.1", "echo first=1 >> $BRINGUP_OUTPUT; exit 1"))
    finish(supervisor, step("a.1.2", "echo second=2 >> $BRINGUP_OUTPUT"))
    assert supervisor.output("a.1.2") == b"second=2\n"


def test_a_step_that_writes_no_output_has_an_empty_one(supervisor: Supervisor) -> None:
    assert finish(supervisor, step("a.1.1", "true")).output_size == 0
    assert supervisor.output("a.1.1") == b""


def test_the_check_writes_no_outputs(supervisor: Supervisor) -> None:
    outcome = finish(supervisor, step("a.1.1", "false", check='test -z "${BRINGUP_OUTPUT-}"'))
    assert outcome.outcome == "no-change"


@pytest.mark.parametrize("size", [65_536, 65_537])
def test_outputs_are_bounded(supervisor: Supervisor, size: int) -> None:
    outcome = finish(supervisor, step("a.1.1", f"head -c {size} /dev/zero > $BRINGUP_OUTPUT"))
    assert outcome.output_size == size
    if size == 65_536:
        assert supervisor.output("a.1.1") == bytes(size)
        return
    with pytest.raises(
        SupervisorError, match="the step wrote 65537 bytes to BRINGUP_OUTPUT; at most 65536"
    ) as e:
        supervisor.output("a.1.1")
    assert e.value.failure_class == "validation"


@pytest.mark.parametrize("instead", ["mkfifo $BRINGUP_OUTPUT", "ln -s /dev/zero $BRINGUP_OUTPUT", "true"])
def test_something_else_in_the_place_of_the_output_is_no_output(supervisor: Supervisor, instead: str) -> None:
    spec = step("a.1.1", f"rm $BRINGUP_OUTPUT; {instead}")
    outcome = finish(supervisor, spec)
    assert (outcome.exit_status, outcome.output_size) == (0, 0)
    assert finish(supervisor, spec) == outcome
    assert supervisor.output("a.1.1") == b""


def test_the_output_of_an_unknown_step_is_an_error(supervisor: Supervisor) -> None:
    with pytest.raises(SupervisorError, match=r"nothing is known of step a\.1\.1"):
        supervisor.output("a.1.1")


def test_a_body_without_a_check_that_ends_well_counts_as_a_change(supervisor: Supervisor) -> None:
    assert finish(supervisor, step("a.1.1", "true")).outcome == "changed"


def test_a_check_that_says_77_before_the_body_skips_it(supervisor: Supervisor, base: str) -> None:
    outcome = finish(supervisor, step("a.1.1", f"touch {base}/done", check="exit 77"))
    assert (outcome.state, outcome.exit_status, outcome.outcome) == (StepState.EXITED, 0, "skipped")
    assert not Path(base, "done").exists()


def test_a_check_that_says_77_after_the_body_has_failed(supervisor: Supervisor, base: str) -> None:
    spec = step("a.1.1", f"touch {base}/done", check=f"test ! -e {base}/done || exit 77; exit 1")
    outcome = finish(supervisor, spec)
    assert (outcome.exit_status, outcome.outcome) == (0, "verify-failed")


def test_a_result_of_an_earlier_boot_says_so(supervisor: Supervisor, base: str) -> None:
    before = finish(supervisor, step("a.1.1", "echo kept; echo x=1 > $BRINGUP_OUTPUT", token=4))
    story = Path(base, "runs", "a.1.1_st")
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    story.write_text(story.read_text().replace(boot, "00000000-0000-0000-0000-000000000000"))
    after = finish(supervisor, step("a.1.1", "never run", token=4))
    assert (before.rebooted, after.rebooted) == (False, True)
    assert (after.state, after.exit_status, after.outcome) == (StepState.EXITED, 0, "changed")
    assert after.stdout_size == 5
    assert supervisor.output("a.1.1") == b"x=1\n"
