"""Folders of ours in the host's cgroup2 tree: they keep a machine's processes together, and end them."""

import errno
import os
from contextlib import suppress
from pathlib import Path

from providers.sandbox.host import CommandError, wait_until

_RMDIR_SECONDS = 5.0
_END_SECONDS = 10.0
#: No such folder; or it was removed while its file was being read.
_GONE = (errno.ENOENT, errno.ENODEV)


def cgroup2_root() -> Path | None:
    """Return where the host has its cgroup2 tree, None where it has none."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    return None


def populated(group: Path) -> bool:
    """Say whether any process lives in the group or below it; a missing group has none."""
    try:
        return "populated 1" in (group / "cgroup.events").read_text().splitlines()
    except OSError as error:
        if error.errno in _GONE:
            return False
        raise


def processes(group: Path) -> list[int]:
    """Return the pids of the processes directly in the group."""
    return [int(line) for line in (group / "cgroup.procs").read_text().split()]


def kill(group: Path) -> None:
    """Send KILL to every process in the group and below, in one go and without a gap; does not wait."""
    with suppress(FileNotFoundError):
        # Not write_text: opening with O_CREAT in a removed group would be refused with another error.
        descriptor = os.open(group / "cgroup.kill", os.O_WRONLY)
        try:
            os.write(descriptor, b"1")
        finally:
            os.close(descriptor)


def remove(group: Path) -> bool:
    """Remove the group's folders; False when that does not succeed because something still runs there."""
    return wait_until(lambda: _removed(group), _RMDIR_SECONDS)


def end(group: Path) -> None:
    """End everything in the group and remove it; raises CommandError if something will not end."""
    kill(group)
    if not (wait_until(lambda: not populated(group), _END_SECONDS) and remove(group)):
        raise CommandError(f"processes in {group} do not end; look at the cgroup.procs below it")


def _removed(group: Path) -> bool:
    for folder, _, _ in os.walk(group, topdown=False):
        # Just after a kill the kernel may still be busy with the dead.
        with suppress(OSError):
            os.rmdir(folder)
    return not group.exists()
