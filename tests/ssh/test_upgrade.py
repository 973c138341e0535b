"""A newer supervisor takes over what an older one started, while it runs.

`fixtures/supervisor-0.sh` is the script as an earlier version had it, byte for byte; it is not to be changed.
"""

from __future__ import annotations

import shlex
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from activities.ssh.connection import Connection
from activities.supervisor import script
from activities.supervisor.client import Supervisor
from activities.supervisor.errors import TokenRefused
from activities.supervisor.script import Layout
from activities.supervisor.spec import StepState
from tests.ssh.helpers import Logs, eventually, exists, finish, pretend, run, runner_of, step

OLD = Path(__file__).parent / "fixtures" / "supervisor-0.sh"


class Old:
    """The older version on the machine, called as its client called it."""

    def __init__(self, connection: Connection, base: str) -> None:
        self._connection = connection
        self._layout = Layout(base, sudo=False)
        self.path = Path(base, "lib", "supervisor-0123456789ab.sh")
        self.path.parent.mkdir(parents=True)
        Path(base, "runs").mkdir()

    def call(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """What it answers on standard error; installed when it is not there."""
        if not self.path.exists():
            self.path.write_bytes(OLD.read_bytes())
        words = shlex.split(self._layout.call("feed", *arguments))
        words[words.index(self._layout.path)] = str(self.path)
        return self._connection.exec(shlex.join(words), stdin, timeout_s=60).stderr

    def run(self, key: str, body: str, *, token: int = 1, timeout_s: int = 60) -> bytes:
        arguments = (key, str(token), str(timeout_s), "50", "0", "0", str(len(body)), "0", "-")
        interpreters = ("/bin/sh", "", "/bin/sh", "")
        return self.call("run", *arguments, *interpreters, stdin=body.encode() + b"#end\n")


@pytest.fixture
def old(connection: Connection, base: str) -> Old:
    return Old(connection, base)


@pytest.fixture(params=["cgroup", "perl:157", "python3"])
def way(request: pytest.FixtureRequest, old: Old, supervisor: Supervisor, base: str) -> None:
    """One way of finding processes, for both versions."""
    if request.param == "cgroup":
        if supervisor.facts().containment != "cgroup":
            pytest.skip("no writable cgroup2 here")
        return
    if request.param.startswith("perl") and supervisor.facts().architecture != "x86_64":
        pytest.skip("the system call number is x86_64's")
    supervisor.facts()
    pretend(base, way=request.param)


def start(old: Old, threads: ThreadPoolExecutor, base: str, body: str) -> Future[bytes]:
    answer = threads.submit(old.run, "a.1.1", f"echo $$ > {base}/pid; {body}")
    eventually(lambda: Path(base, "pid").exists() and Path(base, "pid").read_text() != "", "the body runs")
    return answer


@pytest.mark.usefixtures("way")
def test_a_step_of_the_old_version_is_followed_to_its_end(
    old: Old, supervisor: Supervisor, base: str
) -> None:
    body = f"echo before; until test -e {base}/go; do sleep 0.05; done; echo after; exit 7"
    logs = Logs()
    with ThreadPoolExecutor(2) as threads:
        answer = start(old, threads, base, body)
        following = threads.submit(run, supervisor, step("a.1.1", "never run"), logs)
        eventually(lambda: logs.stdout.size > 0, "the new version hands on what was printed before")
        Path(base, "go").touch()
        outcome = following.result(10)
        assert b"end state=exited exit=7" in answer.result(10)
    assert outcome is not None
    assert (outcome.state, outcome.exit_status, outcome.outcome) == (StepState.EXITED, 7, None)
    assert (outcome.rebooted, outcome.output_size) == (False, 0)
    assert bytes(logs.stdout.data) == b"before\nafter\n"


@pytest.mark.usefixtures("way")
def test_a_step_of_the_old_version_is_canceled(old: Old, supervisor: Supervisor, base: str) -> None:
    with ThreadPoolExecutor(1) as threads:
        answer = start(old, threads, base, "trap '' TERM; while :; do sleep 1; done")
        proof = supervisor.cancel("a.1.1", 1, grace_s=0.2)
        assert b"end state=canceled" in answer.result(10)
    assert (proof.state, proof.clean) == (StepState.CANCELED, True)
    assert not exists(int(Path(base, "pid").read_text()))
    outcome = finish(supervisor, step("a.1.1", "never run"))
    assert (outcome.state, outcome.clean) == (StepState.CANCELED, True)


def test_results_of_the_old_version_are_understood(old: Old, supervisor: Supervisor) -> None:
    old.run("a.1.1", "echo kept")
    old.run("b.1.1", "exit 4")
    logs = Logs()
    kept = finish(supervisor, step("a.1.1", "never run"), logs)
    assert (kept.exit_status, kept.outcome, bytes(logs.stdout.data)) == (0, "changed", b"kept\n")
    assert finish(supervisor, step("b.1.1", "never run")).outcome is None


def test_tokens_hold_across_versions(old: Old, supervisor: Supervisor, base: str) -> None:
    assert b"end" in old.call("token", "7", "50")
    with pytest.raises(TokenRefused):
        finish(supervisor, step("a.1.1", f"touch {base}/ran", token=6))
    supervisor.raise_token(8)
    assert b"fail superseded 8" in old.run("a.1.1", f"touch {base}/ran", token=7)
    assert not Path(base, "ran").exists()


def test_raising_the_token_ends_the_steps_of_the_old_version(
    old: Old, supervisor: Supervisor, base: str
) -> None:
    with ThreadPoolExecutor(1) as threads:
        answer = start(old, threads, base, "exec sleep 300")
        supervisor.raise_token(2, grace_s=0.2)
        assert b"end state=canceled" in answer.result(10)
    assert not exists(int(Path(base, "pid").read_text()))


def test_the_old_version_still_works_beside_the_new_one(old: Old, supervisor: Supervisor) -> None:
    """As while workers are being replaced one after the other."""
    supervisor.facts()
    assert b"end state=exited exit=5" in old.run("a.1.1", "exit 5")
    assert finish(supervisor, step("b.1.1", "exit 6")).exit_status == 6


def test_the_old_version_is_removed_once_nothing_runs_it(old: Old, supervisor: Supervisor, base: str) -> None:
    body = f"until test -e {base}/go; do sleep 0.05; done; exit 3"
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(old.run, "a.1.1", body, token=9)
        runner = runner_of(base, "a.1.1")
        # Of that token itself, so that raising it leaves the step alone.
        Path(base, "token").write_text("8\n")
        supervisor.raise_token(9)
        assert old.path.exists()
        Path(base, "go").touch()
        assert b"end state=exited exit=3" in answer.result(10)
    eventually(lambda: not exists(runner), "the runner has ended")
    eventually(lambda: not _runs(old.path), "nothing runs the old version")
    supervisor.raise_token(10)
    assert not old.path.exists()
    assert Path(Layout(base, sudo=False).path).read_bytes() == script.script()


def _runs(path: Path) -> bool:
    for words in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(path).encode() in words.read_bytes():
                return True
        except OSError:
            continue
    return False
