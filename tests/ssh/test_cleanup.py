"""What stays on a machine and for how long: results, files of killed supervisors, earlier versions."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from activities.supervisor.client import Supervisor
from activities.supervisor.errors import SupervisorError
from activities.supervisor.spec import StepState
from tests.ssh.helpers import eventually, finish, pretend, run, runner_of, step

_DAY = 86_400
_ANOTHER_BOOT = "00000000-0000-0000-0000-000000000000"


def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def leave(base: str, key: str, *, days_old: float, last: str = "exited 0 - changed - 6.0") -> None:
    """Put the records of a step there, as one of that age left them."""
    runs = Path(base, "runs")
    (runs / f"{key}_st").write_text(f"started {boot()} 1 5.0 1700000000\nrunner 1 1\n{last}\n")
    begun = time.time() - days_old * _DAY
    for suffix in ("lock", "st"):
        path = runs / f"{key}_{suffix}"
        path.touch()
        os.utime(path, (begun, begun))


def kept(base: str) -> set[str]:
    """The keys of which anything is kept."""
    return {path.name.partition("_")[0] for path in Path(base, "runs").iterdir()}


def test_the_newest_200_steps_are_kept_however_old(supervisor: Supervisor, base: str) -> None:
    supervisor.raise_token(1)
    for number in range(210):
        leave(base, f"a.{number}.1", days_old=100 + number)
    supervisor.raise_token(2)
    assert kept(base) == {f"a.{number}.1" for number in range(200)}


def test_1000_steps_are_kept_while_they_are_younger_than_30_days(supervisor: Supervisor, base: str) -> None:
    supervisor.raise_token(1)
    for number in range(1010):
        leave(base, f"a.{number}.1", days_old=1 + number / 1000 if number < 990 else 20 + number / 1000)
    supervisor.raise_token(2)
    assert kept(base) == {f"a.{number}.1" for number in range(1000)}


def test_of_the_steps_between_only_those_older_than_30_days_go(supervisor: Supervisor, base: str) -> None:
    supervisor.raise_token(1)
    for number in range(220):
        leave(base, f"a.{number}.1", days_old=number / 1000 if number < 210 else 31 + number)
    supervisor.raise_token(2)
    assert kept(base) == {f"a.{number}.1" for number in range(210)}


def test_one_raise_removes_at_most_100_the_oldest_first(supervisor: Supervisor, base: str) -> None:
    supervisor.raise_token(1)
    for number in range(320):
        leave(base, f"a.{number}.1", days_old=100 + number)
    supervisor.raise_token(2)
    assert kept(base) == {f"a.{number}.1" for number in range(220)}
    supervisor.raise_token(2)
    assert len(kept(base)) == 220, "only a higher token cleans up"
    supervisor.raise_token(3)
    assert kept(base) == {f"a.{number}.1" for number in range(200)}


def test_what_runs_or_may_still_run_is_never_removed(supervisor: Supervisor, base: str) -> None:
    own = step("own.1.1", f"until test -e {base}/go; do sleep 0.05; done; exit 4", token=5)
    assert run(supervisor, own, should_stop=Path(base, "runs", "own.1.1_st").exists) is None
    os.utime(Path(base, "runs", "own.1.1_lock"), (0, 0))
    pretend(base, way="none")
    leave(base, "unproven.1.1", days_old=400, last="canceled - - - 0 6.0")
    story = Path(base, "runs", "unproven.1.1_st")
    story.write_text(story.read_text().replace(" 1 5.0", " 9 5.0"))
    for number in range(202):
        leave(base, f"a.{number}.1", days_old=100)
    # The token of the step that runs, so that it is not ended: what is tried is the removal alone.
    Path(base, "token").write_text("4\n")
    supervisor.raise_token(5)
    assert {"own.1.1", "unproven.1.1"} <= kept(base)
    assert len(kept(base)) < 204
    supervisor.purge()
    assert kept(base) == {"own.1.1", "unproven.1.1"}
    Path(base, "go").touch()
    assert finish(supervisor, own).exit_status == 4


def test_a_reboot_is_proof_and_what_it_ended_may_be_removed(supervisor: Supervisor, base: str) -> None:
    supervisor.facts()
    for key, last in (("a.1.1", "canceled - - - 0 6.0"), ("b.1.1", "")):
        leave(base, key, days_old=1, last=last)
        story = Path(base, "runs", f"{key}_st")
        story.write_text(story.read_text().replace(boot(), _ANOTHER_BOOT))
    supervisor.purge()
    assert kept(base) == set()


def secret_files(base: str) -> list[str]:
    return [path.name for path in Path(base, "runs").iterdir() if "_in_" in path.name]


def test_the_files_of_a_lost_step_stay_until_it_is_settled(supervisor: Supervisor, base: str) -> None:
    spec = step("a.1.1", f"touch {base}/begun; sleep 60", environment={"SECRET": "value-needle"})
    with ThreadPoolExecutor(1) as threads:
        following = threads.submit(finish, supervisor, spec)
        runner = runner_of(base, "a.1.1")
        eventually(Path(base, "begun").exists, "the body runs")
        os.kill(runner, signal.SIGKILL)
        assert following.result(5).state is StepState.LOST
    assert secret_files(base)
    assert supervisor.cancel("a.1.1", 1, 0.2).clean
    assert secret_files(base) == []


def test_the_files_of_a_step_that_a_reboot_ended_are_removed(supervisor: Supervisor, base: str) -> None:
    supervisor.facts()
    Path(base, "runs", "a.1.1_st").write_text(f"started {_ANOTHER_BOOT} 1 5.0 1700000000\n")
    Path(base, "runs", "a.1.1_in_feed.env").write_text("export SECRET=value-needle\n")
    assert finish(supervisor, step("a.1.1", "true")).state is StepState.REBOOTED
    assert secret_files(base) == []


def test_input_that_a_killed_supervisor_left_goes_with_the_step(supervisor: Supervisor, base: str) -> None:
    supervisor.facts()
    Path(base, "runs", "a.1.1_in_feed.body").write_text("half a bo")
    assert finish(supervisor, step("a.1.1", "exit 3")).exit_status == 3
    eventually(lambda: secret_files(base) == [], "nothing of the input is left")


def test_a_claim_without_a_story_may_be_started(supervisor: Supervisor, base: str) -> None:
    """As a crash leaves it between the lock and the start."""
    supervisor.facts()
    for name in ("lock", "st", "out", "err"):
        Path(base, "runs", f"a.1.1_{name}").touch()
    assert finish(supervisor, step("a.1.1", "exit 3")).exit_status == 3


def test_a_step_whose_records_are_gone_is_not_started_again(supervisor: Supervisor, base: str) -> None:
    supervisor.facts()
    with pytest.raises(SupervisorError, match=r"records of step a\.1\.1 are gone") as caught:
        supervisor.run(
            step("a.1.1", f"touch {base}/ran"),
            stdout_offset=3,
            on_stdout=lambda _offset, _data: None,
            on_stderr=lambda _offset, _data: None,
        )
    assert caught.value.failure_class == "lost-machine"
    assert not Path(base, "ran").exists()
