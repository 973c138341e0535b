"""Machines of another make behind the same sshd: a root folder with busybox and little else."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from activities.ssh.target import SshTarget
from tests.ssh.conftest import Sshd, make_key

BUSYBOX = Path("/usr/bin/busybox")

# Mounted where only this machine's processes see it; gone when the holder and the last step are.
_HOLD = """
set -e
mount --make-rprivate /
mount -t proc proc "$0/proc"
for folder in /dev /sys /var/tmp /usr/lib /usr/lib64; do
  [ ! -e $folder ] || mount --rbind $folder "$0$folder"
done
echo ready
exec cat
"""


@contextmanager
def busybox_machine(
    sshd: Sshd, root: Path, *, programs: Iterable[str] = (), files: Mapping[str, str] | None = None
) -> Iterator[SshTarget]:
    """A machine where every command is busybox's, but for `programs`, copied from this one.

    `files` are made, executable, with what they hold; a copied program can be in `/opt` as well, for them to
    use. /var/tmp is shared with this machine.
    """
    for folder in ("proc", "dev", "sys", "var/tmp", "usr/lib", "usr/lib64", "usr/bin", "etc", "root", "opt"):
        (root / folder).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / name).symlink_to(f"usr/{name.replace('sbin', 'bin')}")
    shutil.copy(BUSYBOX, root / "usr/bin/busybox")
    applets = subprocess.run([BUSYBOX, "--list"], check=True, capture_output=True, text=True).stdout.split()
    for applet in set(applets) - {"busybox"}:
        (root / "usr/bin" / applet).symlink_to("busybox")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    for program in programs:
        place = root / (program.lstrip("/") if program.startswith("/") else f"usr/bin/{program}")
        place.unlink(missing_ok=True)
        shutil.copy(Path("/usr/bin", Path(program).name).resolve(), place)
    for name, text in (files or {}).items():
        (root / name).unlink(missing_ok=True)
        (root / name).write_text(text)
        (root / name).chmod(0o755)
    holder = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", _HOLD, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"ready\n"
        yield _reached_by_a_key(sshd, root, holder.pid)
    finally:
        holder.stdin.close()
        holder.wait(10)
        holder.stdout.close()


def _reached_by_a_key(sshd: Sshd, root: Path, holder: int) -> SshTarget:
    """Another key of the same sshd, whose commands run in the machine, by its login shell."""
    key = make_key(root / "key")
    command = f"exec nsenter -t {holder} -m chroot {root} /bin/sh -l -c"
    public = (root / "key.pub").read_text()
    with (sshd.folder / "authorized_keys").open("a") as keys:
        keys.write(f'command="{command} \\"$SSH_ORIGINAL_COMMAND\\"" {public}')
    return sshd.target(private_key=key)
