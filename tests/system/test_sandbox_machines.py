"""Sandbox machines behave like machines: real ones, as root, on this host."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from providers.base import PowerState, Provider, ProviderError
from providers.sandbox import SandboxMachine, SandboxProvider, SandboxSite
from providers.sandbox.checks import missing
from providers.sandbox.host import wait_until
from providers.sandbox.waiting import wait_for_banner

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(os.geteuid() != 0, reason="sandbox machines need root"),
]

REPOSITORY = Path(__file__).parents[2]
# Not below /tmp: machines have an empty one of their own, which would hide whatever is left to see.
VISIBLE = Path("/var/tmp")
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")
SETTINGS = (
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all",
    "net/ipv4/conf/default",
    "net/ipv4/neigh/default",
    "net/ipv6/conf/all",
    "net/ipv6/conf/default",
    "vm",
    "kernel/hostname",
    "kernel/pid_max",
    "fs/file-max",
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder that machines would see if it were not hidden from them."""
    with tempfile.TemporaryDirectory(dir=VISIBLE, prefix="bringup-test-") as path:
        yield Path(path)


@pytest.fixture
def site(folder: Path) -> Iterator[SandboxSite]:
    site = SandboxSite(folder / "site")
    site.open()
    try:
        yield site
    finally:
        site.close()


@pytest.fixture
def machine(site: SandboxSite) -> SandboxMachine:
    site.create("alpha")
    return start(site, "alpha")


def start(site: SandboxSite, name: str) -> SandboxMachine:
    site.power_on(name)
    return answering(site, name)


def answering(site: SandboxSite, name: str) -> SandboxMachine:
    found = site.machine(name)
    assert wait_for_banner(found.address, found.port, 20), site.log_tail(name)
    return found


def ssh(machine: SandboxMachine, script: str, *, check: bool = True) -> str:
    """Run a script as root; the machine must show exactly the host key that was announced."""
    with tempfile.NamedTemporaryFile("w", suffix=".known") as known:
        known.write(f"{machine.address} {machine.host_key}\n")
        known.flush()
        words = [
            "ssh",
            "-F",
            "none",
            "-i",
            str(machine.key_file),
            "-o",
            "BatchMode=yes",
            "-p",
            str(machine.port),
        ]
        words += ["-o", "StrictHostKeyChecking=yes", "-o", f"UserKnownHostsFile={known.name}"]
        words += ["-o", "LogLevel=ERROR", "-o", "ConnectTimeout=5"]
        words += [f"{machine.user}@{machine.address}", "sh -s"]
        done = subprocess.run(words, input=script, capture_output=True, text=True, check=False, timeout=60)
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip() if check else done.stdout + done.stderr


def wait_for_new_boot(site: SandboxSite, old: SandboxMachine) -> SandboxMachine:
    assert wait_until(lambda: site.machine(old.name).boot_id != old.boot_id, 20)
    assert wait_until(lambda: "yes" in ssh(answering(site, old.name), "echo yes", check=False), 20)
    return site.machine(old.name)


def loops(site: SandboxSite, name: str) -> list[int]:
    """The host's processes that bring the machine back after a reboot."""
    wanted = str(site.directory / "machines" / name)
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode().split("\0") if entry.name.isdigit() else []
            if len(words) > 4 and words[1].endswith("run.sh") and words[4] == wanted:
                # The shell forks for a moment at each boot; the loop itself is the leader of its session.
                found += [int(entry.name)] if os.getsid(int(entry.name)) == int(entry.name) else []
    return found


def test_this_host_lacks_nothing(folder: Path) -> None:
    assert missing(folder / "not-there-yet") == []
    assert not list(folder.iterdir())


def test_a_machine_has_its_own_name_address_boot_id_and_announced_host_key(machine: SandboxMachine) -> None:
    said = ssh(machine, "hostname; cat /etc/hostname /proc/sys/kernel/random/boot_id; hostname -I; id -u")
    assert said.split() == ["alpha", "alpha", machine.boot_id, machine.address, "0"]


def test_a_machine_shares_no_namespace_with_the_host(machine: SandboxMachine) -> None:
    said = ssh(machine, f"for n in {' '.join(NAMESPACES)}; do readlink /proc/self/ns/$n; done").split()
    assert len(said) == len(NAMESPACES)
    assert not set(said) & {os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES}


def test_only_the_sites_key_opens_a_machine(machine: SandboxMachine) -> None:
    words = ["ssh", "-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no"]
    words += [
        "-o",
        "UserKnownHostsFile=/dev/null",
        "-o",
        "PubkeyAuthentication=no",
        f"root@{machine.address}",
    ]
    done = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    assert done.returncode == 255
    assert "Permission denied (publickey)" in done.stderr


@pytest.mark.parametrize("command", ["reboot", "reboot -f", "shutdown -r now"])
def test_a_reboot_from_inside_keeps_disk_address_and_key(
    site: SandboxSite, machine: SandboxMachine, command: str
) -> None:
    ssh(machine, "echo kept > /var/lib/kept; echo renamed > /etc/hostname; touch /tmp/lost /run/lost")
    ssh(machine, command, check=False)
    after = wait_for_new_boot(site, machine)
    assert (after.address, after.host_key) == (machine.address, machine.host_key)
    said = ssh(
        after,
        "cat /var/lib/kept /proc/sys/kernel/random/boot_id; hostname; ls /tmp /run; cut -d. -f1 /proc/uptime",
    )
    assert said.split()[:3] == ["kept", after.boot_id, "renamed"]
    assert "lost" not in said
    assert int(said.split()[-1]) < 30


@pytest.mark.parametrize("command", ["poweroff", "shutdown -h now"])
def test_a_power_off_from_inside_stays_off_until_power_on(
    site: SandboxSite, machine: SandboxMachine, command: str
) -> None:
    ssh(machine, f"echo kept > /var/lib/kept; {command}", check=False)
    assert wait_until(lambda: site.power_state("alpha") is PowerState.OFF, 10)
    assert loops(site, "alpha") == []
    after = start(site, "alpha")
    assert after.boot_id != machine.boot_id
    assert ssh(after, "cat /var/lib/kept") == "kept"


def test_the_provider_switches_by_management_address(site: SandboxSite, machine: SandboxMachine) -> None:
    provider: Provider = SandboxProvider(site)
    assert provider.host_key("sandbox://alpha") == machine.host_key
    assert provider.power_state("sandbox://alpha") is PowerState.ON
    provider.reboot("sandbox://alpha")
    assert answering(site, "alpha").boot_id != machine.boot_id
    provider.power_off("sandbox://alpha")
    assert provider.power_state("sandbox://alpha") is PowerState.OFF
    provider.power_off("sandbox://alpha")
    provider.power_on("sandbox://alpha")
    provider.power_on("sandbox://alpha")
    assert ssh(answering(site, "alpha"), "hostname") == "alpha"


@pytest.mark.parametrize(
    "address", ["sandbox://nobody", "sandbox://../alpha", "redfish://alpha", "sandbox://"]
)
def test_an_address_that_is_no_machine_is_refused(site: SandboxSite, address: str) -> None:
    with pytest.raises(ProviderError) as caught:
        SandboxProvider(site).power_on(address)
    assert caught.value.address.rstrip("/") == address.rstrip("/")


def test_reimage_gives_an_empty_disk_and_a_new_host_key(site: SandboxSite, machine: SandboxMachine) -> None:
    ssh(machine, "echo gone > /var/lib/gone; rm /etc/debian_version")
    key = SandboxProvider(site).reimage("sandbox://alpha")
    after = answering(site, "alpha")
    assert key == after.host_key != machine.host_key
    assert after.address == machine.address
    assert (
        ssh(after, "ls /var/lib/gone 2>/dev/null || echo none; ls /etc/debian_version").split()[0] == "none"
    )
    assert "Host key verification failed" in ssh(machine, "true", check=False)


def test_a_reimage_that_must_not_be_any_more_changes_nothing(
    site: SandboxSite, machine: SandboxMachine
) -> None:
    def guard() -> None:
        raise LookupError("it is another's by now")

    with pytest.raises(LookupError):
        SandboxProvider(site).reimage("sandbox://alpha", guard)
    assert ssh(machine, "cat /proc/sys/kernel/random/boot_id").strip() == machine.boot_id


def test_a_reimage_that_was_cut_short_is_done_again_at_the_next_start(
    site: SandboxSite, machine: SandboxMachine
) -> None:
    ssh(machine, "echo gone > /var/lib/gone")
    site.power_off("alpha")
    alpha = site.directory / "machines/alpha"
    (alpha / "reimaging").touch()
    shutil.rmtree(alpha / "up/etc")
    after = start(site, "alpha")
    assert after.host_key != machine.host_key
    assert ssh(after, "ls /var/lib/gone 2>/dev/null || echo none") == "none"


def test_a_machine_sees_nothing_private_of_the_host(
    folder: Path, site: SandboxSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("secret", "plain"):
        (folder / name).mkdir()
        (folder / name / "word").write_text(name)
    monkeypatch.setenv("BRINGUP_SANDBOX_MASK", f"{folder / 'secret'}:{REPOSITORY}")
    site.open()
    monkeypatch.delenv("BRINGUP_SANDBOX_MASK")
    site.create("alpha")
    machine = start(site, "alpha")
    assert ssh(machine, f"cat {folder}/plain/word") == "plain"
    assert ssh(machine, f"ls -A {folder}") == "plain"
    for hidden in (folder / "secret/word", site.directory / "ssh/id_ed25519", REPOSITORY / "pyproject.toml"):
        assert hidden.exists()
        assert "No such file" in ssh(machine, f"cat {hidden}", check=False)
    assert ssh(machine, "find /root /home -type f | sort").split() == [
        "/root/.bashrc",
        "/root/.profile",
        "/root/.ssh/authorized_keys",
    ]
    assert ssh(machine, "cat /root/.bashrc /root/.profile; ls -A /tmp") == ""
    assert set(ssh(machine, "cut -d: -f2 /etc/shadow").split()) == {"*"}
    keys = ssh(machine, "ls /etc/ssh/ssh_host_*").split()
    assert keys == ["/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_ed25519_key.pub"]


def test_what_a_machine_writes_where_something_is_hidden_stays_its_own(
    folder: Path, site: SandboxSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "secret").mkdir()
    (folder / "secret/word").write_text("secret")
    monkeypatch.setenv("BRINGUP_SANDBOX_MASK", str(folder / "secret"))
    site.create("alpha")
    ssh(start(site, "alpha"), f"mkdir {folder}/secret && echo mine > {folder}/secret/own")
    site.reboot("alpha")
    assert ssh(answering(site, "alpha"), f"ls {folder}/secret; cat {folder}/secret/own").split() == [
        "own",
        "mine",
    ]
    assert [path.name for path in (folder / "secret").iterdir()] == ["word"]


def test_global_settings_are_each_machines_own(site: SandboxSite, machine: SandboxMachine) -> None:
    site.create("beta")
    beta = start(site, "beta")
    before = settings()
    ssh(machine, "sysctl -w vm.swappiness=11 net.ipv4.ip_forward=1 kernel.pid_max=40000 fs.file-max=5000")
    ssh(beta, "sysctl -w vm.swappiness=22")
    assert ssh(machine, "sysctl -n vm.swappiness net.ipv4.ip_forward").split() == ["11", "1"]
    assert ssh(beta, "sysctl -n vm.swappiness net.ipv4.ip_forward").split() == ["22", "0"]
    assert settings() == before


def test_settings_in_files_are_applied_at_boot(site: SandboxSite, machine: SandboxMachine) -> None:
    ssh(machine, "echo vm.swappiness=33 > /etc/sysctl.d/99-test.conf")
    site.reboot("alpha")
    assert ssh(answering(site, "alpha"), "sysctl -n vm.swappiness") == "33"


def test_a_step_may_do_what_provisioning_needs(machine: SandboxMachine) -> None:
    ssh(
        machine,
        """set -e
        hostname other; [ "$(hostname)" = other ]; [ "$(cat /proc/sys/kernel/hostname)" = other ]
        mount -t tmpfs none /mnt; touch /mnt/x; umount /mnt
        mkdir /sys/fs/cgroup/step; sleep 60 & echo $! > /sys/fs/cgroup/step/cgroup.procs
        grep -q 'populated 1' /sys/fs/cgroup/step/cgroup.events
        echo 1 > /sys/fs/cgroup/step/cgroup.kill; wait $! || :; rmdir /sys/fs/cgroup/step
        useradd -m someone; su someone -c id; chown someone /opt; chmod 700 /opt
        a=$(cat /proc/sys/kernel/random/uuid); [ "$a" != "$(cat /proc/sys/kernel/random/uuid)" ]
        /usr/bin/python3 -c 'import json'
        """,
    )


def test_packages_can_be_installed_and_removed(machine: SandboxMachine) -> None:
    ssh(
        machine,
        """set -e
        mkdir -p /tmp/p/DEBIAN /tmp/p/usr/share/probe; echo hello > /tmp/p/usr/share/probe/text
        printf 'Package: probe\\nVersion: 1\\nArchitecture: all\\nMaintainer: a <a@b.c>\\nDescription: d\\n' \
            > /tmp/p/DEBIAN/control
        dpkg-deb -b /tmp/p /tmp/probe.deb; apt-get -y install /tmp/probe.deb; cat /usr/share/probe/text
        apt-get -y remove probe; [ ! -e /usr/share/probe/text ]
        """,
    )
    assert not Path("/usr/share/probe").exists()


@pytest.mark.parametrize(
    "attempt",
    [
        "mknod /root/disk b 254 0",
        "mount -t devtmpfs none /mnt",
        "date -s 2001-01-01",
        ": >> /proc/sysrq-trigger",  # opens, writes nothing
        "echo x > /sys/power/state",
    ],
)
def test_a_step_cannot_reach_the_host(machine: SandboxMachine, attempt: str) -> None:
    assert ssh(machine, f"({attempt}) 2>/dev/null && echo done || echo refused").split()[-1] == "refused"


def test_a_killed_sshd_comes_back_without_a_reboot(site: SandboxSite, machine: SandboxMachine) -> None:
    listener = ssh(machine, "cat /proc/1/task/1/children").split()[0]
    ssh(machine, f"kill -9 {listener}", check=False)
    again = answering(site, "alpha")
    assert wait_until(
        lambda: listener not in ssh(again, "cat /proc/1/task/1/children", check=False).split(), 5
    )
    assert again.boot_id == machine.boot_id


def test_a_machine_whose_loop_was_killed_runs_on_and_power_on_repairs_it(
    site: SandboxSite, machine: SandboxMachine
) -> None:
    (loop,) = loops(site, "alpha")
    os.kill(loop, signal.SIGKILL)
    assert wait_until(lambda: loops(site, "alpha") == [], 5)
    assert ssh(machine, "hostname") == "alpha"
    assert site.power_state("alpha") is PowerState.ON
    repaired = start(site, "alpha")
    assert repaired.boot_id != machine.boot_id
    ssh(repaired, "reboot", check=False)
    wait_for_new_boot(site, repaired)


def test_many_starts_at_once_start_one_machine(folder: Path, site: SandboxSite) -> None:
    site.create("alpha")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: SandboxSite(folder / "site").power_on("alpha"), range(8)))
    machine = answering(site, "alpha")
    assert len(loops(site, "alpha")) == 1
    assert ssh(machine, "cat /proc/sys/kernel/random/boot_id") == machine.boot_id
    assert not (site.directory / "machines/alpha/boots").exists()


def test_a_power_off_during_reboots_is_final(site: SandboxSite, machine: SandboxMachine) -> None:
    for delay in (0.0, 0.01, 0.03, 0.06, 0.1):
        ssh(start(site, "alpha"), "reboot", check=False)
        time.sleep(delay)  # to meet the reboot at different points
        site.power_off("alpha")
        assert site.power_state("alpha") is PowerState.OFF
        assert loops(site, "alpha") == []


def test_a_machine_that_cannot_boot_says_why_and_is_off(site: SandboxSite) -> None:
    site.create("alpha")
    shutil.rmtree(site.directory / "machines/alpha/wk")
    with pytest.raises(
        ProviderError, match=r"sandbox://alpha: the machine did not boot: mount: .*alpha/root"
    ):
        site.power_on("alpha")
    assert site.power_state("alpha") is PowerState.OFF


def test_a_closed_site_starts_nothing_and_opens_again_with_the_same_machines(site: SandboxSite) -> None:
    site.create("alpha")
    first = start(site, "alpha")
    site.close()
    with pytest.raises(ProviderError, match="closed"):
        site.power_on("alpha")
    site.open()
    second = start(site, "alpha")
    assert (second.address, second.host_key) == (first.address, first.host_key)
    assert second.boot_id != first.boot_id


def test_opening_again_reconnects_running_machines(site: SandboxSite, machine: SandboxMachine) -> None:
    bridge = json.loads((site.directory / "site.json").read_text())["bridge"]
    subprocess.run(["ip", "link", "del", bridge], check=True)
    site.open()
    assert ssh(answering(site, "alpha"), "cat /proc/sys/kernel/random/boot_id") == machine.boot_id


def test_two_sites_do_not_meet(folder: Path, site: SandboxSite, machine: SandboxMachine) -> None:
    other = SandboxSite(folder / "other")
    other.open()
    try:
        other.create("alpha")
        twin = start(other, "alpha")
        assert twin.address != machine.address
        other.close()
        assert ssh(machine, "hostname") == "alpha"
    finally:
        other.close()


@pytest.mark.parametrize("place", ["a folder with spaces", "another user's folder", "memory"])
def test_a_site_may_lie_in(folder: Path, place: str) -> None:
    parent = folder / place
    if place == "memory":
        parent = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="bringup-test-"))
    else:
        parent.mkdir(mode=0o700)
    if place.startswith("another"):
        os.chown(parent, 65534, 65534)
    site = SandboxSite(parent / "site")
    try:
        assert missing(site.directory) == []
        site.open()
        site.create("alpha")
        ssh(start(site, "alpha"), "reboot", check=False)
        wait_for_new_boot(site, site.machine("alpha"))
    finally:
        site.close()
        shutil.rmtree(parent)


def test_a_path_that_overlay_cannot_take_is_refused(folder: Path) -> None:
    site = SandboxSite(folder / "a:b")
    assert len(missing(site.directory)) == 1
    with pytest.raises(ProviderError, match="colon"):
        site.open()


def test_a_destroyed_machines_address_is_free_again_and_others_keep_theirs(site: SandboxSite) -> None:
    first, second = site.create("alpha"), site.create("beta")
    site.destroy("alpha")
    assert site.machines() == [second]
    assert site.create("gamma").address == first.address


def test_closing_leaves_nothing_on_the_host(folder: Path) -> None:
    site = SandboxSite(folder / "site")
    before = host_state()
    site.open()
    for name in ("alpha", "beta", "gamma"):
        site.create(name)
        ssh(start(site, name), "sleep 600 >/dev/null 2>&1 & setsid sleep 600 >/dev/null 2>&1 &")
    inside, group, links = processes_inside(site), cgroup_of(site), links_of(site)
    assert len(inside) >= 3 * 4
    assert group.is_dir()
    assert len(links) == 4
    site.close()
    assert host_state() == before
    assert not inside & processes_now()
    assert not processes_that_know(site.directory)
    assert not group.exists()
    assert not links & set(os.listdir("/sys/class/net"))


def test_closing_works_after_the_directory_was_deleted(folder: Path) -> None:
    site = SandboxSite(folder / "site")
    site.open()
    site.create("alpha")
    start(site, "alpha")
    inside, group, links = processes_inside(site), cgroup_of(site), links_of(site)
    shutil.rmtree(site.directory, ignore_errors=True)
    site.close()
    assert not group.exists()
    # The host's first process reaps, and the kernel removes the interface, in their own time.
    assert wait_until(lambda: not inside & processes_now(), 5)
    assert wait_until(lambda: not processes_that_know(site.directory), 5)
    assert wait_until(lambda: not links & set(os.listdir("/sys/class/net")), 5)


def test_forty_machines_answer_within_ten_seconds(site: SandboxSite) -> None:
    began = time.monotonic()
    names = [f"m-{number}" for number in range(1, 41)]
    for name in names:
        site.create(name)
    with ThreadPoolExecutor(16) as pool:
        machines = list(pool.map(lambda name: start(site, name), names))
    assert time.monotonic() - began < 10
    assert len({machine.address for machine in machines}) == 40
    assert len({machine.host_key for machine in machines}) == 40


def test_the_command_line_brings_a_site_up_and_down(folder: Path) -> None:
    try:
        first = cli(folder, "up", "--machines", "2", "--names-from", "local")["machines"]
        assert [(m["name"], m["bmc"], m["power"]) for m in first] == [
            ("local-1", "sandbox://local-1", "on"),
            ("local-2", "sandbox://local-2", "on"),
        ]
        assert cli(folder, "up", "--machines", "2")["machines"] == first
        assert [m["power"] for m in cli(folder, "down")["machines"]] == ["off", "off"]
        second = cli(folder, "up", "--machines", "3")["machines"]
        assert [m["name"] for m in second] == ["local-1", "local-2", "local-3"]
        for old, new in zip(first, second, strict=False):
            assert {k for k in old if old[k] != new[k]} == {"bootId"}
        assert cli(folder, "reboot", "local-3")["bootId"] != second[2]["bootId"]
        assert cli(folder, "power-off", "local-3")["power"] == "off"
    finally:
        assert cli(folder, "destroy")["machines"] == []


def test_a_directory_on_an_overlay_is_reported(folder: Path) -> None:
    for name in ("lower", "upper", "work", "merged"):
        (folder / name).mkdir()
    options = f"lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work"
    script = 'mount -t overlay o -o "$1" "$2" && exec "$3" -m providers.sandbox "$2/site" check'
    words = ["unshare", "--mount", "sh", "-c", script, "sh", options, str(folder / "merged"), sys.executable]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    (sentence,) = json.loads(done.stdout)
    assert "overlay" in sentence
    assert "--data-dir" in sentence


def cli(folder: Path, *words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "providers.sandbox", str(folder / "site"), *words]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def settings() -> dict[str, str]:
    found = {}
    for name in SETTINGS:
        place = Path("/proc/sys") / name
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            with suppress(OSError):
                found[str(path)] = path.read_text()
    return found


def host_state() -> dict[str, object]:
    """What a site could change on this host, but for interfaces that others may add or remove meanwhile."""
    links = json.loads(subprocess.run(["ip", "-j", "link"], capture_output=True, check=True).stdout)
    names = {
        link["ifname"] for link in links if not link["ifname"].startswith(("bu", "bv", "veth", "docker"))
    }
    return {"links": names, "mounts": Path("/proc/self/mounts").read_text(), "settings": settings()}


def cgroup_of(site: SandboxSite) -> Path:
    return Path(json.loads((site.directory / "site.json").read_text())["cgroup"])


def links_of(site: SandboxSite) -> set[str]:
    """The site's bridge and what is plugged into it."""
    bridge = json.loads((site.directory / "site.json").read_text())["bridge"]
    return {bridge, *os.listdir(f"/sys/class/net/{bridge}/brif")}


def processes_now() -> set[tuple[str, str]]:
    """All processes, zombies included, by pid and start time: pids (and namespace numbers) are used again."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found.add((entry.name, (entry / "stat").read_text().rsplit(")", 1)[1].split()[19]))
    return found


def processes_inside(site: SandboxSite) -> set[tuple[str, str]]:
    """The processes of all machines of the site, without the host's loops."""
    pids = set()
    for path in cgroup_of(site).glob("*/**/cgroup.procs"):
        pids |= set(path.read_text().split())
    return {process for process in processes_now() if process[0] in pids}


def processes_that_know(directory: Path) -> list[str]:
    """Processes with the directory in their command line, working directory or mounts."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            mounts = (entry / "mountinfo").read_text()
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
            if any(str(directory) in text for text in (mounts, command, os.readlink(entry / "cwd"))):
                found.append(f"{entry.name} {command}")
    return found
