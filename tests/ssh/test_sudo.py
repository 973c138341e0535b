"""A user that is not root, on a machine of its own: steps are run through the real sudo."""

import subprocess
from collections.abc import Iterator
from contextlib import closing

import pytest

from activities.ssh.connection import Connection
from activities.supervisor.client import Supervisor
from activities.supervisor.errors import SupervisorError
from activities.supervisor.spec import StepState
from tests.fixtures.sandbox_machine import Machine, sandbox_machine
from tests.ssh.helpers import Logs, eventually, finish, run, step

pytestmark = pytest.mark.system

USER = "ops"
BASE = "/var/lib/bringup"
# Without a password it would be a locked account to sshd; `*` is one that nobody can type.
ADD_USER = f"""\
set -eu
useradd --create-home --shell /bin/bash --password '*' {USER}
mkdir -p /home/{USER}/.ssh
cp /root/.ssh/authorized_keys /home/{USER}/.ssh/
chown -R {USER} /home/{USER}/.ssh
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with sandbox_machine(tmp_path_factory.mktemp("sudo"), "sudo") as made:
        done(made.shell(ADD_USER))
        yield made


@pytest.fixture
def supervisor(machine: Machine) -> Iterator[Supervisor]:
    with closing(Connection.open(machine.target(USER))) as connection:
        yield Supervisor(connection, BASE)


def done(command: "subprocess.CompletedProcess[str]") -> str:
    """What a command printed that must succeed."""
    assert command.returncode == 0, command.stderr
    return command.stdout


def allow(machine: Machine, rule: str) -> None:
    """Sets what sudo lets the user do."""
    done(machine.shell(f"umask 0337; rm -f /etc/sudoers.d/{USER}; echo '{rule}' > /etc/sudoers.d/{USER}"))


def may_do_all(machine: Machine) -> None:
    """The rule that images for clouds bring."""
    allow(machine, f"{USER} ALL=(ALL) NOPASSWD:ALL")


def test_a_step_runs_as_root_with_a_clean_environment(machine: Machine, supervisor: Supervisor) -> None:
    may_do_all(machine)
    logs = Logs()
    body = "id -u; env | grep -c SUDO; cat > /root/stdin; echo err >&2; echo v=1 > $BRINGUP_OUTPUT"
    spec = step("a.1.1", body, environment={"A": "it's ünïcode"}, check="test -e /root/stdin")
    outcome = finish(supervisor, spec, logs)
    assert (outcome.state, outcome.exit_status, outcome.outcome) == (StepState.EXITED, 0, "changed")
    assert (bytes(logs.stdout.data), bytes(logs.stderr.data)) == (b"0\n0\n", b"err\n")
    assert supervisor.output("a.1.1") == b"v=1\n"
    assert done(machine.shell(f"stat -c '%U %a' {BASE}")) == "root 700\n"


def test_bytes_are_not_changed_on_their_way_through_it(machine: Machine, supervisor: Supervisor) -> None:
    may_do_all(machine)
    logs = Logs()
    # sudo's pty, which Debian sets up by default, would turn \n into \r\n.
    finish(supervisor, step("b.1.1", r"printf '\n\r\n\004\000\377\003end'"), logs)
    assert bytes(logs.stdout.data) == b"\n\r\n\x04\x00\xff\x03end"


def test_a_cancelled_step_is_ended_for_certain(machine: Machine, supervisor: Supervisor) -> None:
    may_do_all(machine)
    body = "trap '' TERM; setsid sleep 4719 & touch /run/began; while :; do sleep 4719; done"

    def begun() -> bool:
        return machine.shell("test -e /run/began").returncode == 0

    assert run(supervisor, step("c.1.1", body), should_stop=begun) is None
    ended = supervisor.cancel("c.1.1", 1, 0.2)
    assert ended.state is StepState.CANCELED
    assert machine.shell("pgrep -f '^sleep 4719'").returncode == 1


def test_a_lost_connection_leaves_the_step_running(machine: Machine, supervisor: Supervisor) -> None:
    may_do_all(machine)
    spec = step("d.1.1", "echo run >> /root/runs; until test -e /run/go; do sleep 0.05; done; echo out")
    assert run(supervisor, spec, should_stop=lambda: True) is None
    supervisor._connection.close()
    eventually(lambda: machine.shell(f"pgrep -u {USER}").returncode == 1, "the session is gone")
    done(machine.shell("touch /run/go"))
    logs = Logs()
    with closing(Connection.open(machine.target(USER))) as connection:
        assert finish(Supervisor(connection, BASE), spec, logs).exit_status == 0
    assert bytes(logs.stdout.data) == b"out\n"
    assert done(machine.shell("cat /root/runs")) == "run\n"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (f"rm -f /etc/sudoers.d/{USER}", "sudo: a password is required"),
        (f"echo '{USER} ALL=(ALL) /bin/true' > /etc/sudoers.d/{USER}", "sudo: a password is required"),
        ("chmod 0755 /usr/bin/sudo", "sudo"),
        ("rm /usr/bin/sudo", "sudo: not found"),
    ],
    ids=["no rights", "other rights", "not setuid", "no sudo"],
)
def test_a_user_that_may_not_is_a_privilege_failure_that_says_why(
    machine: Machine, supervisor: Supervisor, spoil: str, said: str
) -> None:
    done(machine.shell(spoil))
    with pytest.raises(SupervisorError, match=said) as caught:
        supervisor.facts()
    assert caught.value.failure_class == "privilege"
