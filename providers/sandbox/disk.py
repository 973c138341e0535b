"""A machine's disk: what differs from the host's root, as the upper layer of an overlay.

Everything here works on a disk that is not mounted. Paths on it are walked without following symbolic links,
for after its first boot the content is the machine's own.
"""

import os
import secrets
import shutil
import stat
from pathlib import Path

from providers.sandbox.host import CommandError, command

HOST_KEY = "ssh_host_ed25519_key"
_OPAQUE = "trusted.overlay.opaque"
#: Present but empty on every machine.
_EMPTY = (Path("/root"), Path("/home"))
#: Not there at all on a machine: what this host, as a managed machine itself, or its sshd would lend to it.
_ABSENT = (Path("/var/lib/bringup"), Path("/etc/shadow-"), Path("/etc/gshadow-"))
_SSHD_CONFIG = f"""\
Port 22
HostKey /etc/ssh/{HOST_KEY}
PidFile none
UsePAM no
UseDNS no
PermitRootLogin prohibit-password
AuthenticationMethods publickey
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintMotd no
PrintLastLog no
MaxSessions 64
MaxStartups 100:30:300
AcceptEnv LANG LC_*
SetEnv PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
Subsystem sftp internal-sftp
"""


def seed(upper: Path, name: str, address: str, authorized_key: str) -> str:
    """Fill a new, empty disk and return the machine's public host key.

    ``upper`` must not exist; ``authorized_key`` is the public key that may log in as root.
    """
    upper.mkdir(mode=0o755)
    upper.chmod(0o755)
    _folder(upper, Path("/etc/ssh"))
    for path in _EMPTY:
        _empty(upper, path)
    key = upper / "etc/ssh" / HOST_KEY
    command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(key))
    hosts = f"127.0.0.1 localhost\n{address} {name}\n::1 localhost ip6-localhost ip6-loopback\n"
    _write(upper, "/etc/hostname", f"{name}\n")
    _write(upper, "/etc/hosts", hosts)
    _write(upper, "/etc/fstab", "# The disk of a sandbox machine is mounted from outside.\n")
    _write(upper, "/etc/machine-id", f"{secrets.token_hex(16)}\n", 0o444)
    _write(upper, "/etc/ssh/sshd_bringup", _SSHD_CONFIG)
    _write(upper, "/var/log/console", "")
    for text in ("/etc/shadow", "/etc/gshadow"):
        _write(upper, text, _without_passwords(Path(text)), 0o640)
    _write(upper, "/root/.ssh/authorized_keys", f"{authorized_key}\n", 0o600)
    (upper / "root/.ssh").chmod(0o700)
    for text in ("/root/.profile", "/root/.bashrc"):
        _write(upper, text, "")
    _power_commands(upper)
    # Type and key only: the comment is no part of it.
    return " ".join(Path(f"{key}.pub").read_text().split()[:2])


def put(upper: Path, path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file on a disk that was just seeded, in folders as the host has them."""
    _folder(upper, path.parent)
    place = upper / path.relative_to("/")
    place.unlink(missing_ok=True)
    place.write_bytes(content)
    place.chmod(mode)


def check_path(directory: Path) -> None:
    """Refuse, with a CommandError, a site's directory that could not be named in overlay's mount options."""
    if any(character in str(directory) for character in ",:\\\n"):
        raise CommandError(
            f"the path {directory} has a comma, colon or backslash, which overlay refuses: use another one"
        )


def hide_host(upper: Path, extra: list[Path]) -> None:
    """Hide what no machine may see of this host: its host keys, its password backups, and the extra paths.

    For every start, since the host may have got new ones since the disk was made.
    """
    for path in [*_ABSENT, *Path("/etc/ssh").glob("ssh_host_*"), *extra]:
        hide(upper, path)


def hide(upper: Path, path: Path) -> None:
    """Make a path of the host absent on the disk with all below it; what the machine wrote there stays."""
    if not os.path.lexists(path):
        return
    parts = path.resolve().parts[1:]
    if not parts:
        raise ValueError("the root directory itself cannot be hidden")
    for depth in range(1, len(parts)):
        place = upper.joinpath(*parts[:depth])
        if not os.path.lexists(place):
            _folder(upper, Path("/").joinpath(*parts[:depth]))
        elif not _is_merged(place):
            return  # Whatever is here already hides the host's side.
    place = upper.joinpath(*parts)
    if not os.path.lexists(place):
        os.mknod(place, stat.S_IFCHR, 0)
    elif _is_merged(place):
        os.setxattr(place, _OPAQUE, b"y", follow_symlinks=False)


def _is_merged(place: Path) -> bool:
    """Say whether the host's folder shows through at this folder of the disk."""
    if not stat.S_ISDIR(os.lstat(place).st_mode):
        return False
    try:
        return os.getxattr(place, _OPAQUE, follow_symlinks=False) != b"y"
    except OSError:
        return True


def _empty(upper: Path, path: Path) -> None:
    _folder(upper, path)
    os.setxattr(upper / path.relative_to("/"), _OPAQUE, b"y")


def _folder(upper: Path, path: Path) -> None:
    """Make a folder on the disk, with owner and mode of the host's folder of that name where there is one."""
    place = upper
    for part in path.relative_to("/").parts:
        place /= part
        if place.exists():
            continue
        place.mkdir(mode=0o755)
        place.chmod(0o755)
        host = Path("/") / place.relative_to(upper)
        if host.is_dir():
            owner = host.stat()
            os.chown(place, owner.st_uid, owner.st_gid)
            place.chmod(stat.S_IMODE(owner.st_mode))


def _write(upper: Path, path: str, text: str, mode: int = 0o644) -> None:
    put(upper, Path(path), text.encode(), mode)


def _without_passwords(path: Path) -> str:
    """Return a shadow file in which no account has a password, nor is locked for keys ("!" would do that)."""
    if not path.exists():
        return ""
    lines = (line.split(":") for line in path.read_text().splitlines())
    return "".join(":".join([fields[0], "*", *fields[2:]]) + "\n" for fields in lines)


def _power_commands(upper: Path) -> None:
    _folder(upper, Path("/usr/local/sbin"))
    for name in ("reboot", "poweroff", "halt", "shutdown"):
        place = upper / "usr/local/sbin" / name
        shutil.copyfile(Path(__file__).with_name("power.sh"), place)
        place.chmod(0o755)
