"""Waiting for a machine's first word on the event loop: one that is away takes no thread."""

import asyncio
import os
import socket
import time

from activities.ssh.errors import ConnectError
from activities.ssh.target import SshTarget


async def reached(target: SshTarget, deadline_s: float) -> socket.socket:
    """A TCP connection on which the machine has begun to speak; nothing of it has been read.

    Its owner is the caller, who hands it to the handshake. Raises ConnectError.
    """
    begun = time.monotonic()
    step = "TCP connect"
    opened: socket.socket | None = None
    try:
        async with asyncio.timeout(deadline_s):
            opened = await _connected(target)
            step = "SSH negotiation"
            await _readable(opened)
    except BaseException as error:
        if opened is not None:
            opened.close()
        if isinstance(error, OSError | UnicodeError):
            took = f"{time.monotonic() - begun:.2f} s"
            raise ConnectError(f"{target.endpoint}: {step} failed after {took}: {_cause(error)}") from error
        raise
    return opened


def _cause(error: Exception) -> str:
    """asyncio says `Connect call failed` of whatever has failed; the number knows what it was."""
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno:
        return os.strerror(error.errno)
    return str(error)


async def _connected(target: SshTarget) -> socket.socket:
    """To the first of the name's addresses that takes it, as `socket.create_connection` does."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(target.address, target.port, type=socket.SOCK_STREAM)
    for last, (family, kind, protocol, _, address) in enumerate(found, start=1):
        opened = socket.socket(family, kind, protocol)
        opened.setblocking(False)
        try:
            await loop.sock_connect(opened, address)
        except BaseException as error:
            opened.close()
            if not isinstance(error, OSError) or last == len(found):
                raise
        else:
            return opened
    raise OSError(f"{target.address} has no address")


async def _readable(opened: socket.socket) -> None:
    """Until there is something to read, or the other side has hung up."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(opened, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(opened)
