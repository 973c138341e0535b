"""What a killed `bringup dev` may have left running."""

import asyncio
import contextlib
import signal

from cli.dev.data import DataDirectory
from cli.dev.errors import DevError
from cli.dev.identity import ProcessIdentity, end
from cli.dev.postgres import EmbeddedPostgres

_GRACE = 3.0  # seconds


async def end_processes(data: DataDirectory) -> list[str]:
    """Ends the processes that the pid files of a data directory name; returns the names of those found.

    They die with their supervisor, so there are some only when that was killed at an unlucky moment.
    """
    found = []
    for pid_file in [
        *data.pids.glob("*.pid"),
        data.temporal / "temporal.pid",
        data.postgres / "postgres.pid",
    ]:
        identity = ProcessIdentity.read(pid_file)
        if identity is not None and await asyncio.to_thread(end, identity, signal.SIGTERM, _GRACE):
            found.append(pid_file.stem)
    return found


async def free_shared_memory(data: DataDirectory) -> None:
    """Frees the shared memory of a PostgreSQL that was killed, which only its next start does."""
    if not (data.postgres / "cluster" / "postmaster.pid").exists():
        return
    server = EmbeddedPostgres(data.postgres, log=data.logs / "postgres.log")
    with contextlib.suppress(DevError, OSError):  # a broken cluster may be why it is to be removed
        await server.start()
        await server.stop()
