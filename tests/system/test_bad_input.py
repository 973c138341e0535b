"""Steps that behave badly, one after the other on one machine: each ends in a right result, or is named."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.fixtures.dev_stack import Cluster, DevStack
from tests.system.conftest import command
from tests.system.test_cancelling import address_of, left_of

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]
Make = Callable[..., Cluster]

# Every shell that logs in from here on prints, in no encoding.
NOISE = r"""
for file in /root/.profile /root/.bashrc /etc/profile; do
  printf '%s\n' 'echo Welcome; printf "no end of line and \377" >&2' >> $file
done
"""
BADLY = {
    "noisy": NOISE,
    "binary": r"printf '\377\376\000ok\303(\n'; printf 'why: \377\303\n' >&2; exit 5",
    "closed": "echo before; exec >&- 2>&-; echo unheard; touch /var/went-on",
    "heard": "test -e /var/went-on && echo out && echo err >&2",
    "full": "mount -t tmpfs -o size=1m none /mnt; cat /dev/zero > /mnt/fill",
    "suicide": "echo said; kill -9 $$; echo never",
    "storm": "trap '' TERM; n=0; while [ $n -lt 200 ]; do setsid sleep 4731 & n=$((n+1)); done; wait",
    "daemon": "setsid sleep 4732 > /dev/null 2>&1 & echo left",
    "quiet": "sed -i /Welcome/d /root/.profile /root/.bashrc /etc/profile",
}


def steps() -> list[dict[str, Any]]:
    """The profile's; none ends its node."""
    return [
        command(name, run, onFailure="continue", timeoutSeconds=4 if name == "storm" else 60)
        for name, run in BADLY.items()
    ]


def test_steps_that_behave_badly_end_right_and_leave_the_machine_to_the_next(
    stack: DevStack, cluster: Make
) -> None:
    demo = cluster(*steps())
    operation_id = demo.create(1).json()["operationId"]
    assert demo.ended(operation_id)["state"] == "succeeded"
    (node,) = demo.nodes()
    assert node["Status"] == "Ready"
    ran = {step["step"]: step for step in demo.steps_of(operation_id)}
    ends = {name: _end(ran[name]) for name in BADLY}
    assert ends == {
        "noisy": "changed",
        "binary": "exit",
        "closed": "changed",
        "heard": "changed",
        "full": "exit",
        "suicide": "signal",
        "storm": "timeout",
        "daemon": "changed",
        "quiet": "changed",
    }

    def log(name: str, stream: str = "stdout") -> bytes:
        return stack.log(ran[name]["stepRunId"], stream)

    assert log("binary") == b"\xff\xfe\0ok\xc3(\n"
    assert log("binary", "stderr") == b"why: \xff\xc3\n"
    assert log("closed") == b"before\n"
    assert (log("heard"), log("heard", "stderr")) == (b"out\n", b"err\n"), "nothing of what shells print"
    assert log("suicide") == b"said\n"
    said = {name: ran[name]["card"] for name in ("binary", "full", "suicide")}
    assert said["binary"]["stderr_tail"] == "why: \ufffd\ufffd\n"
    assert "No space left on device" in said["full"]["stderr_tail"]
    assert said["suicide"]["signal"] == 9
    address = address_of(demo, "gpu-1")
    assert left_of(stack, address, "4731") == [], "of the storm nothing is left"
    assert left_of(stack, address, "4732") == ["sleep 4732"], "what a step leaves running goes on"


def _end(step: dict[str, Any]) -> str:
    """The class of its failure, or its outcome."""
    return str(step["card"]["failure_class"] if step["card"] else step["outcome"])
