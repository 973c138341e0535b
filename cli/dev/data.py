"""The data directory of `bringup dev`: its layout, its lock, its marker, its removal."""

import os
import shutil
from pathlib import Path

from cli.dev.errors import DevError
from cli.dev.lock import DirectoryInUseError, DirectoryLock

_MARKER = ".bringup-data"
_MARKER_TEXT = "Made by `bringup dev`; `bringup dev --reset` may remove everything beside this file.\n"


class DataDirectory:
    """Paths below one directory. `open` makes it ours, `close` frees it for the next `bringup dev`."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.logs = self.root / "logs"
        self.pids = self.root / "pids"
        self.postgres = self.root / "postgres"
        self.temporal = self.root / "temporal"
        self.sandbox = self.root / "sandbox"
        self.secrets = self.root / "secrets"
        self.token = self.root / "token"
        self.ready = self.root / "ready.json"
        self._lock = DirectoryLock(self.root)

    def open(self) -> None:
        """Makes the directory, for this user only, and takes its lock.

        Raises `DevError` when another `bringup dev` runs on it, or when it holds files that are not ours.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (self.root / _MARKER).exists() and any(self.root.iterdir()):
            raise DevError(
                f"{self.root} is not empty and was not made by bringup dev; choose another --data-dir"
            )
        try:
            self._lock.acquire()
        except DirectoryInUseError as in_use:
            raise DevError(
                f"bringup dev already runs on {self.root} (process {in_use.holder}): stop that one with "
                "Ctrl-C, or choose another --data-dir"
            ) from None
        (self.root / _MARKER).write_text(_MARKER_TEXT)
        self._make_folders()

    def close(self) -> None:
        """Frees the lock; everything else stays for the next start."""
        self._lock.release()

    def wipe(self) -> None:
        """Removes all state; to be called between `open` and `close`, with nothing running on it.

        Refuses while something is mounted below, for removing would then reach through the mount.
        """
        if mounts := mounts_below(self.root):
            raise DevError(f"something is still mounted below {self.root}: {', '.join(map(str, mounts))}")
        for entry in self.root.iterdir():
            if entry.name in (_MARKER, "lock"):
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        self._make_folders()

    def _make_folders(self) -> None:
        os.chmod(self.root, 0o700)  # tokens, passwords and host keys lie below
        for folder in (self.logs, self.pids, self.secrets):
            folder.mkdir(mode=0o700, exist_ok=True)


def mounts_below(directory: Path) -> list[Path]:
    """The mount points below a directory, as this process sees them."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [Path(line.split()[4].encode().decode("unicode_escape")) for line in lines]
    return [point for point in points if directory in point.parents]
