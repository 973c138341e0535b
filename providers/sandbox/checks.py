"""What a host must have for sandbox machines, tried for real rather than guessed from versions."""

import os
import shutil
import tempfile
from pathlib import Path

from providers.sandbox import cgroups, disk
from providers.sandbox.host import COMMAND_PATH, CommandError, command

_PACKAGES = {
    "ip": "iproute2",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "setsid": "util-linux",
    "mount": "mount",
    "mkfifo": "coreutils",
    "find": "findutils",
    "hostname": "hostname",
    "perl": "perl-base",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
}
_SYSTEM_FOLDERS = ("/usr", "/etc", "/var", "/var/lib")
_NAMESPACES = (
    "unshare --user --map-root-user --mount --pid --uts --ipc --net --cgroup --fork sh -c "
    '\'set -e; hostname probe; mount -t proc proc "$0"; umount "$0"; mount -t sysfs -o ro sysfs "$0"; '
    'umount "$0"; mount -t cgroup2 cgroup "$0"; mount -t tmpfs tmpfs "$0"\' "$0"'
)


def missing(directory: Path) -> list[str]:
    """Say what this host lacks for a site in the directory: a sentence each, with how to get it.

    Empty if nothing is missing. Changes nothing that stays.
    """
    if os.geteuid() != 0:
        return ["Sandbox machines need root: run the command as root (sudo)."]
    lacking = _missing_commands()
    if lacking:
        return lacking  # The trials below use them.
    return [*_system_folders(), *_sshd_user(), *_cgroup(), *_namespaces(), *_links(), *_overlay(directory)]


def _missing_commands() -> list[str]:
    return [
        f"The command {name} is missing: apt-get install {package}."
        for name, package in _PACKAGES.items()
        if shutil.which(name, path=COMMAND_PATH) is None
    ]


def _system_folders() -> list[str]:
    return [
        f"{path} is a file system of its own, which machines would see empty: they share only the root file "
        "system; use a host where it lies on that."
        for path in _SYSTEM_FOLDERS
        if os.path.ismount(path)
    ]


def _sshd_user() -> list[str]:
    if any(line.startswith("sshd:") for line in Path("/etc/passwd").read_text().splitlines()):
        return []
    return ["The user sshd is missing: apt-get install --reinstall openssh-server."]


def _cgroup() -> list[str]:
    root = cgroups.cgroup2_root()
    if root is None:
        return ["No cgroup2 tree is mounted: mount -t cgroup2 cgroup2 /sys/fs/cgroup."]
    probe = root / f"bringup-check-{os.getpid()}"
    try:
        probe.mkdir()
    except OSError as error:
        return [f"The cgroup2 tree {root} is not writable ({error.strerror}): use a host where it is."]
    try:
        if not (probe / "cgroup.kill").exists():
            return ["The kernel is too old, it has no cgroup.kill: use Linux 5.14 or newer."]
    finally:
        probe.rmdir()
    return []


def _namespaces() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        try:
            command("sh", "-c", _NAMESPACES, folder)
        except CommandError as error:
            return [
                f"Namespaces cannot be made ({_last_line(error)}): on a host of its own set "
                "user.max_user_namespaces above 0; in a container add SYS_ADMIN and NET_ADMIN and switch off "
                "its seccomp and masked-path settings."
            ]
    return []


def _links() -> list[str]:
    try:
        command(
            "unshare",
            "--net",
            "sh",
            "-c",
            "ip link add probe0 type bridge && ip link add probe1 type veth peer name probe2",
        )
    except CommandError as error:
        return [f"Bridges or veth pairs cannot be made ({_last_line(error)}): modprobe bridge veth."]
    return []


def _overlay(directory: Path) -> list[str]:
    place = directory.resolve()
    try:
        disk.check_path(place)
    except CommandError as error:
        return [f"{str(error).capitalize()}."]
    while not place.is_dir():
        place = place.parent
    try:
        with tempfile.TemporaryDirectory(dir=place, prefix=".overlay-") as folder:
            for name in ("up", "wk", "root"):
                (Path(folder) / name).mkdir()
            options = f"lowerdir=/,upperdir={folder}/up,workdir={folder}/wk,index=off,metacopy=off"
            try:
                command(
                    "unshare", "--mount", "mount", "-t", "overlay", "probe", "-o", options, f"{folder}/root"
                )
                os.setxattr(f"{folder}/up", "trusted.overlay.opaque", b"y")
            finally:
                shutil.rmtree(f"{folder}/wk/work", ignore_errors=True)
    except (CommandError, OSError) as error:
        kind = command("stat", "-f", "-c", "%T", str(place)).strip()
        return [
            f"Disks of machines cannot lie in {directory} ({kind}; {_last_line(error)}): overlay refuses "
            "that file system, often because it is an overlay itself; use another --data-dir, on ext4 or xfs."
        ]
    return []


def _last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1].strip().rstrip(".")
