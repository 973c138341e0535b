"""What can go wrong between a worker and a machine, one type per cause.

`failure_class` is the word the failure card carries; whoever retries decides by it. An error's text
names the address and port, what was tried and how long it took, and never a key.
"""

from __future__ import annotations

from typing import ClassVar, Literal

SshFailureClass = Literal["connect", "host-key", "auth", "lost-machine"]


class SshError(Exception):
    """A failure of the connection itself, never of the command that ran over it."""

    failure_class: ClassVar[SshFailureClass] = "lost-machine"


class ConnectError(SshError):
    """No SSH conversation could be begun: name, route, refused port, silence, or no free connection."""

    failure_class = "connect"


class HostKeyError(SshError):
    """The machine showed another host key than the pinned one. Nothing was sent to it."""

    failure_class = "host-key"


class AuthError(SshError):
    """The machine refuses the key, or the key itself cannot be read."""

    failure_class = "auth"


class ChannelError(SshError):
    """An open connection broke, or went silent beyond its deadline."""

    failure_class = "lost-machine"
