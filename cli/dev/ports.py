"""TCP ports on the loopback address."""

import random
import socket
from pathlib import Path

from cli.dev.errors import DevError

LOOPBACK = "127.0.0.1"
_LOWEST = 10240
_TRIES = 200


class PortTakenError(DevError):
    """Something else listens on a port that was asked for by name."""

    def __init__(self, port: int, option: str) -> None:
        self.port = port
        self.option = option
        super().__init__(
            f"port {port} on {LOOPBACK} is in use; end what listens there, or choose another with "
            f"{option} PORT ({option} 0 picks a free one)"
        )


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def free_port() -> int:
    """A free port below the kernel's range for outgoing connections.

    Inside that range a client that retries while its server restarts can be given the server's own
    port, connect to itself and so keep the server from coming back.
    """
    ceiling = _first_outgoing_port()
    for _ in range(_TRIES):
        port = random.randrange(_LOWEST, ceiling)
        if is_free(port):
            return port
    raise OSError(f"no free port found on {LOOPBACK} between {_LOWEST} and {ceiling}")


def choose_port(asked: int, option: str) -> int:
    """`asked` if it is free (`PortTakenError` names `option` if not), or any free port when it is 0."""
    if asked == 0:
        return free_port()
    if not is_free(asked):
        raise PortTakenError(asked, option)
    return asked


def _first_outgoing_port() -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first = 32768
    return first if first > _LOWEST + _TRIES else 65536
