"""Waiting until a machine answers SSH."""

import socket
from contextlib import suppress

from providers.sandbox.host import wait_until

# Short: until the machine's interface is up, connecting may hang rather than be refused.
_CONNECT_SECONDS = 0.3
_BANNER_SECONDS = 2.0


def wait_for_banner(address: str, port: int, seconds: float) -> bool:
    """Wait until an SSH server greets at the address; False if none did within the given time."""
    return wait_until(lambda: _greets(address, port), seconds)


def _greets(address: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((address, port), _CONNECT_SECONDS) as connection:
        connection.settimeout(_BANNER_SECONDS)
        return connection.recv(64).startswith(b"SSH-")
    return False
