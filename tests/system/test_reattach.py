"""A step goes on whatever dies around it, and is followed again: its log without a gap, its body run once.

The step says numbered lines on both streams, with a byte that is no UTF-8, until its machine has a file. So
each fault meets it running, however long that fault takes to be got over.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from activities.ssh.connection import Connection
from activities.ssh.target import SshTarget
from activities.supervisor.client import Supervisor
from activities.supervisor.errors import TokenRefused
from activities.supervisor.spec import StepSpec
from tests.fixtures.dev_stack import Cluster, DevStack, eventually
from tests.system.conftest import command
from tests.system.test_cancelling import address_of, left_of

pytestmark = pytest.mark.system
Make = Callable[..., Cluster]

LINES = """
echo ran >> /var/count.lines
n=0
while [ ! -e /var/stop ]; do
  n=$((n + 1))
  printf 'out %d \\377\\n' $n
  printf 'err %d \\376\\n' $n >&2
  sleep 0.03
done
echo $n > /var/lines
"""
# How long a cable is out, in seconds. Longer than any patience of the connection's own.
CUT = 31.0


def lines_step(**more: Any) -> dict[str, Any]:
    """The step that talks until it is told to stop."""
    return command("lines", LINES, timeoutSeconds=600, **more)


class Talk:
    """One node's run of the step, as bringup and its machine tell of it."""

    def __init__(self, cluster: Cluster, operation_id: str, name: str) -> None:
        self._stack = cluster.stack
        self._cluster = cluster
        self._operation_id = operation_id
        self.name = name
        self.address = address_of(cluster, name)

    def records(self) -> list[dict[str, Any]]:
        """Every attempt of the step on this node."""
        steps = self._cluster.steps_of(self._operation_id)
        return [step for step in steps if (step["step"], step["name"]) == ("lines", self.name)]

    def goes_on(self) -> None:
        """Returns once more of both streams is stored than now; the step must be running."""
        (before,) = self.records()
        assert before["state"] == "running", f"the step on {self.name} must still be running"

        def more() -> bool:
            (now,) = self.records()
            return all(now[size] > before[size] for size in ("stdoutSize", "stderrSize"))

        eventually(f"the step on {self.name} is followed again", more, 90)

    def stop(self) -> None:
        """Lets the step come to its end."""
        self._stack.machine_ssh(self.address, "touch /var/stop")

    def assert_whole(self) -> None:
        """Its log is what it said, byte for byte, and it said it once."""
        (record,) = self.records()
        assert (record["state"], record["attempt"]) == ("succeeded", 1)
        assert self._stack.machine_ssh(self.address, "cat /var/count.lines").split() == ["ran"]
        count = int(self._stack.machine_ssh(self.address, "cat /var/lines"))
        assert count > 0
        for stream, first, last in (("stdout", b"out", b"\xff"), ("stderr", b"err", b"\xfe")):
            said = b"".join(b"%b %d %b\n" % (first, n, last) for n in range(1, count + 1))
            assert self._stack.log(record["stepRunId"], stream) == said, f"{stream} of {self.name}"


def talking(demo: Cluster, count: int) -> tuple[str, list[Talk]]:
    """A create whose nodes all run the step."""
    operation_id = demo.create(count).json()["operationId"]
    demo.running(operation_id, "lines", count)
    talks = [Talk(demo, operation_id, f"gpu-{number}") for number in range(1, count + 1)]
    for talk in talks:
        talk.goes_on()
    return operation_id, talks


def assert_all_whole(demo: Cluster, operation_id: str, talks: list[Talk]) -> None:
    """The operation has ended well, and so has every step of it."""
    assert demo.ended(operation_id)["state"] == "succeeded"
    assert [node["Status"] for node in demo.nodes()] == ["Ready"] * len(talks)
    for talk in talks:
        talk.assert_whole()


def kill(stack: DevStack, role: str) -> None:
    """Kills a process of the control plane, and returns once another one serves."""
    killed = stack.kill(role)
    eventually(f"{role} is started again", lambda: stack.pid(role) != killed)


@pytest.mark.timeout(300)
def test_machines_are_cut_off_or_lose_their_sshd_while_all_else_dies_as_well(
    stack: DevStack, cluster: Make
) -> None:
    demo = cluster(lines_step())
    operation_id, talks = talking(demo, 4)
    cut, sessions, every, untouched = talks
    until = time.monotonic() + CUT
    with stack.link_down(cut.address):
        listener, *rest = stack.machine_processes(sessions.address, "sshd")
        for pid in rest:
            os.kill(pid, signal.SIGKILL)
        for pid in stack.machine_processes(every.address, "sshd"):
            os.kill(pid, signal.SIGKILL)
        for talk in (sessions, every, untouched):
            talk.goes_on()
        for role in ("postgres", "worker", "temporal", "api"):
            kill(stack, role)
            for talk in (sessions, every, untouched):
                talk.goes_on()
        (silent,) = cut.records()
        assert silent["state"] == "running", "a machine that is cut off has not failed"
        eventually("the cable has been out for long enough", lambda: time.monotonic() > until)
    cut.goes_on()
    assert listener in stack.machine_processes(sessions.address, "sshd")
    for talk in talks:
        talk.stop()
    assert_all_whole(demo, operation_id, talks)


def follower_of(stack: DevStack, node_id: str) -> str:
    """Which worker Temporal last gave a node's activity to, such as `4711@host`; empty before any."""
    pending = stack.workflow(f"node/{node_id}").raw_description.pending_activities
    return pending[0].last_worker_identity if pending else ""


def is_with(stack: DevStack, node_id: str, pid: int) -> bool:
    """Whether this worker has the node's activity."""
    return follower_of(stack, node_id).startswith(f"{pid}@")


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """A process that is stopped, and goes on in the end."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def late_run(stack: DevStack, address: str, token: int) -> None:
    """What a worker does on a machine that it still takes for its own: starts its step."""
    key = (stack.data_dir / "sandbox/ssh/id_ed25519").read_text()
    target = SshTarget(address=address, port=22, user="root", private_key=key, host_key=None)
    connection = Connection.open(target)
    try:
        Supervisor(connection).run(
            StepSpec(key="late.0.1", token=token, run=b"echo ran >> /var/count.late"),
            on_stdout=lambda _at, _data: None,
            on_stderr=lambda _at, _data: None,
        )
    finally:
        connection.close()


def highest_token(stack: DevStack, address: str) -> int:
    return int(stack.machine_ssh(address, "cat /var/lib/bringup/token"))


@pytest.mark.timeout(300)
def test_a_worker_that_comes_back_late_changes_nothing(stack: DevStack, cluster: Make) -> None:
    leaving = command(
        "leave", "echo ran >> /var/count.leave; until [ -e /var/left ]; do sleep 0.1; done", phase="terminate"
    )
    demo = cluster(lines_step(), leaving)
    operation_id, (kept, lost) = talking(demo, 2)
    ids = {node["Name"]: node["NodeId"] for node in demo.nodes()}
    first = stack.pid("worker")
    assert all(is_with(stack, node_id, first) for node_id in ids.values())
    token = highest_token(stack, lost.address)

    with stack.second_worker() as second:
        with frozen(first):
            ending = demo.terminate("gpu-2").json()["operationId"]
            eventually(
                "the other worker has taken the step over",
                lambda: is_with(stack, ids["gpu-1"], second.pid),
                120,
            )
            kept.goes_on()
            # The machine of the other node belongs to another run now, which is at work there.
            demo.running(ending, "leave", 1)
            (said,) = lost.records()
            with pytest.raises(TokenRefused):
                late_run(stack, lost.address, token)
            assert left_of(stack, lost.address, "0.03") == []
            for pid in stack.machine_processes(lost.address, "sshd")[1:]:
                os.kill(pid, signal.SIGKILL)
        # Both are awake and at work on the same step; only one of them may write.
        kept.goes_on()
        kept.goes_on()
        assert highest_token(stack, lost.address) > token
        assert stack.machine_ssh(lost.address, "cat /var/count.lines").split() == ["ran"]
        assert stack.machine_ssh(lost.address, "cat /var/count.leave; ls /var").split().count("ran") == 1
        assert "count.late" not in stack.machine_ssh(lost.address, "ls /var").split()
        assert lost.records() == [said], "what is recorded of the step stays as it was"
        demo.running(ending, "leave", 1)
        for talk in (kept, lost):
            stack.machine_ssh(talk.address, "touch /var/left")
        assert demo.ended(ending)["state"] == "succeeded"
    # The second worker has been stopped; the one that was late has the step again, and brings it to its end.
    assert stack.pid("worker") == first
    eventually("the first worker follows again", lambda: is_with(stack, ids["gpu-1"], first), 90)
    kept.goes_on()
    kept.stop()
    assert demo.ended(operation_id)["state"] == "partially_succeeded"
    kept.assert_whole()
