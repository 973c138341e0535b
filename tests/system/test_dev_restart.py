"""`bringup dev` stopped and started again on its data directory. What it leaves behind is nothing."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.dev_stack import Cluster, DevStack, eventually
from tests.system.conftest import command

pytestmark = pytest.mark.system


def host_settings() -> dict[str, str]:
    """Settings of the host's network that nothing here may change."""
    sysctls = Path("/proc/sys/net/ipv4")
    names = ("ip_forward", "neigh/default/retrans_time_ms", "conf/all/forwarding")
    return {name: (sysctls / name).read_text().strip() for name in names}


def left_of(data_dir: Path) -> list[str]:
    """What of a stopped stack is still on the host: its bridge and ports, mounts, cgroups, processes.

    Only its own: another one may come and go on the same host.
    """
    site = json.loads((data_dir / "sandbox" / "site.json").read_text())
    links = subprocess.run(["ip", "-o", "link"], check=True, capture_output=True, text=True).stdout
    mounts = Path("/proc/self/mountinfo").read_text()
    digest = site["bridge"].removeprefix("bu")
    cgroups = [str(each) for each in Path("/sys/fs/cgroup").rglob(f"bringup-{digest}")]
    return [
        *(line for line in links.splitlines() if site["bridge"] in line),
        *(line for line in mounts.splitlines() if str(data_dir) in line),
        *cgroups,
        *processes_of(data_dir),
    ]


def processes_of(data_dir: Path) -> list[str]:
    """Processes that have to do with a data directory: by command line, working directory or root."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            told = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            where = os.readlink(process / "cwd")
        except OSError:
            continue
        if str(data_dir) in told or str(data_dir) in where:
            found.append(f"{process.name}: {told}")
    return found


def test_a_stop_leaves_nothing_and_a_start_goes_on_where_it_was(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("machines need root")
    before = host_settings()
    stack = DevStack(tmp_path / "data", machines=3)
    try:
        stack.start()
        pool = stack.pool_of_all_machines()
        kept = Cluster(stack, [command("mark", "echo kept > /var/kept")]).make(pool)
        kept.ended(kept.create(1).json()["operationId"])
        (ready,) = kept.nodes()
        boot_id = stack.machine_ssh(ready["PrivateIp"], "cat /proc/sys/kernel/random/boot_id")
        token = stack.ready["token"]

        half = Cluster(
            stack, [command("slow", "sleep 6; touch /var/slow", check="test -e /var/slow", timeoutSeconds=60)]
        ).make(pool)
        operation_id = half.create(2).json()["operationId"]
        eventually("the slow step runs", lambda: len(half.steps_of(operation_id)) >= 4)

        assert stack.stop(seconds=10) == 0
        assert left_of(stack.data_dir) == []
        assert host_settings() == before
        assert not stack.ready_file.exists()

        stack.start()
        assert stack.ready["token"] == token
        (again,) = kept.nodes()
        assert again == ready | {"UpdatedAt": again.get("UpdatedAt", ready.get("UpdatedAt"))}
        assert stack.machine_ssh(again["PrivateIp"], "cat /var/kept").strip() == "kept"
        assert stack.machine_ssh(again["PrivateIp"], "cat /proc/sys/kernel/random/boot_id") != boot_id
        assert half.ended(operation_id)["state"] == "succeeded"
        assert {node["Status"] for node in half.nodes()} == {"Ready"}

        assert stack.process is not None
        stack.process.send_signal(signal.SIGTERM)
        assert stack.process.wait(timeout=10) == 0
    finally:
        stack.close()
    assert left_of(stack.data_dir) == []
    assert host_settings() == before


def test_a_killed_supervisor_is_cleared_up_after_by_the_next_start(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("machines need root")
    before = host_settings()
    stack = DevStack(tmp_path / "data", machines=1)
    try:
        stack.start()
        assert stack.process is not None
        stack.process.kill()
        stack.process.wait()
        stack.start()
        assert {node["state"] for node in stack.fleet("nodes/list")["items"]} == {"ready"}
        assert stack.stop() == 0
    finally:
        stack.close()
    assert left_of(stack.data_dir) == []
    assert host_settings() == before
