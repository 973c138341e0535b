"""A lock on a directory, so that one directory never has two servers."""

import fcntl
import os
from pathlib import Path

from cli.dev.errors import DevError


class DirectoryInUseError(DevError):
    """Another living process holds the directory."""

    def __init__(self, directory: Path, holder: str) -> None:
        self.directory = directory
        self.holder = holder
        by = f" by process {holder}" if holder else ""
        super().__init__(f"{directory} is in use{by}")


class DirectoryLock:
    """An exclusive lock on `directory`, freed by `release` and by any death of this process.

    The kernel drops the lock with its last descriptor, and Python's descriptors are not inherited by
    children; so a lock is never left behind.
    """

    def __init__(self, directory: Path, name: str = "lock") -> None:
        self._directory = directory
        self._path = directory / name
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Takes the lock or raises `DirectoryInUseError` at once; the directory must exist."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode(errors="replace").strip()
            os.close(descriptor)
            raise DirectoryInUseError(self._directory, holder) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._descriptor = descriptor

    def release(self) -> None:
        """Frees the lock; the file stays, for removing it would let two holders lock two files."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
