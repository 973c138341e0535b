"""What can go wrong with a node, each from its real cause, and what must then be said of it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from temporalio.exceptions import ApplicationError, CancelledError, TerminatedError

from tests.fixtures.dev_stack import DevStack
from tests.system.conftest import command
from workflows.client import connect

# It ignores TERM, and so does its child, which has left its session and lost its parent.
STUBBORN = """
trap '' TERM
(setsid sh -c 'trap "" TERM; while :; do sleep 4721; done' &)
while :; do sleep 4721; done
"""
FULL_DISK = "mkdir -p /var/lib/bringup; mount -t tmpfs -o size=4k none /var/lib/bringup"
SMALL_DISK = "mkdir -p /var/lib/bringup; mount -t tmpfs -o size=512k none /var/lib/bringup"
NEW_KEY = "cd /etc/ssh; rm ssh_host_ed25519_key*; ssh-keygen -q -t ed25519 -N '' -f ssh_host_ed25519_key"
SPARE_SECRET = "ssh/spare"


def work(run: str, **more: Any) -> list[dict[str, Any]]:
    """One step."""
    return [command("work", run, **more)]


def script(content: str, **more: Any) -> list[dict[str, Any]]:
    """One step that is a program of its own."""
    return [{"name": "work", "uses": "script", "with": {"content": content, **more}}]


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and what is said of it."""

    failure_class: str
    says: str
    steps: list[dict[str, Any]] = field(default_factory=lambda: work("true"))
    # Run on the machine beforehand; its sshd is then killed, so that no connection of before is left.
    before: str = ""
    # Done while the step `work` runs.
    during: Callable[["Scene", str], None] | None = None
    # The step that the failure belongs to.
    step: str | None = "work"
    status: str = "Failed"
    # How the node's workflow closes.
    workflow: type[Exception] = ApplicationError


@dataclass
class Scene:
    """The create of all faults: what its parts are called."""

    stack: DevStack
    cluster: str
    operation_id: str = ""
    machines: dict[str, dict[str, Any]] = field(default_factory=dict)

    def nodes(self) -> dict[str, dict[str, Any]]:
        """The nodes by fault."""
        listed = self.stack.http.get(f"/clusters/{self.cluster}/nodes").json()["nodes"]
        return {node["Template"]: node for node in listed}


def reboot(scene: Scene, fault: str) -> None:
    scene.stack.machine_power(scene.machines[fault]["name"], "reboot")


def cancel(scene: Scene, fault: str) -> None:
    body = {"names": [f"{fault}-1"]}
    assert scene.stack.http.post(f"/operations/{scene.operation_id}/cancel", json=body).status_code == 202


def terminate_workflow(scene: Scene, fault: str) -> None:
    async def terminate() -> None:
        client = await connect(scene.stack.ready["temporal"], "default")
        await client.get_workflow_handle(f"node/{scene.nodes()[fault]['NodeId']}").terminate("by hand")

    asyncio.run(terminate())


SLEEP = work("exec sleep 4721")
FAULTS = {
    "status": Fault("exit", "exited with status 3 (no such disk)", work("echo no such disk >&2; exit 3")),
    "silent": Fault("exit", "exited with status 4.", work("exit 4")),
    "signal": Fault("signal", "was killed by signal 9", work("kill -9 $$")),
    "late": Fault(
        "timeout",
        "ended after its timeout of 1 s; nothing of it is left",
        work("exec sleep 4721", timeoutSeconds=1),
    ),
    "stubborn": Fault(
        "timeout", "ended after its timeout of 1 s; nothing of it is left", work(STUBBORN, timeoutSeconds=1)
    ),
    "interpreter": Fault(
        "exit", "exited with status 127 (/usr/bin/env: ", script("print()", interpreter="/no/such")
    ),
    "unchecked": Fault("exit", "its check still fails. Read", work("true", check="test -e /no/such")),
    "complaining": Fault(
        "exit",
        "its check still fails (no disk). Read",
        work("echo noise >&2", check="echo no disk; exit 1"),
    ),
    "full": Fault("no-space", "No space left on device", before=FULL_DISK, step=None),
    "filled": Fault(
        "no-space",
        "No space left on device",
        [
            command("fill", "dd if=/dev/zero of=/var/lib/bringup/fill bs=1k 2>/dev/null || true"),
            *work("true"),
        ],
        before=SMALL_DISK,
    ),
    "stranger": Fault("host-key", "the machine shows host key", before=NEW_KEY, step=None),
    "keyless": Fault("auth", "failed. Put", before=": > /root/.ssh/authorized_keys", step=None),
    "off": Fault("connect", "TCP connect failed", step=None, status="Unavailable"),
    "rebooted": Fault("lost-machine", "the machine rebooted", SLEEP, during=reboot, status="Unavailable"),
    "orphaned": Fault(
        "lost-machine",
        "its supervisor on the machine was killed while it ran; nothing of it is left",
        work("kill -9 $PPID; exec sleep 4721"),
        status="Unavailable",
    ),
    "renamed": Fault("health", "the machine calls itself 'other'", work("hostname other"), step=None),
    "garbage": Fault("validation", "line 1 of BRINGUP_OUTPUT", work("echo garbage > $BRINGUP_OUTPUT")),
    "secretless": Fault("validation", f"secret://file/{SPARE_SECRET}: there is no such file", step=None),
    "cancelled": Fault(
        "cancelled", "was cancelled by", SLEEP, during=cancel, step=None, workflow=CancelledError
    ),
    "terminated": Fault(
        "internal",
        "was terminated in the workflow engine",
        SLEEP,
        during=terminate_workflow,
        step=None,
        workflow=TerminatedError,
    ),
}
