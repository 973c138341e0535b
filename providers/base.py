"""What the rest of bringup needs from the place a machine comes from: power, a clean disk, a host key."""

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol


class PowerState(StrEnum):
    """Whether a machine is on. UNKNOWN is an answer of its own: never read it as off."""

    ON = "on"
    OFF = "off"
    UNKNOWN = "unknown"


class ProviderError(Exception):
    """A provider could not do what was asked; the message says what to do about it.

    ``address`` is the machine's management address, or the site's where no single machine is meant.
    """

    def __init__(self, address: str, message: str) -> None:
        super().__init__(address, message)
        self.address = address
        self.message = message

    def __str__(self) -> str:
        return f"{self.address}: {self.message}"


# Raises when what it guards must not be done any more: the caller may have been stopped for a long time.
Guard = Callable[[], None]


def unguarded() -> None:
    """Lets everything be done."""


class Provider(Protocol):
    """Power and disk of machines, by management address (``sandbox://local-1``).

    All calls block, may be made from any thread, may be repeated (asking for what already is does nothing),
    and raise ProviderError. Power off and reboot are hard, like the button: a graceful stop is the caller's.
    """

    def power_on(self, address: str) -> None:
        """Switch the machine on; returns once it boots, which may be before it answers SSH."""
        ...

    def power_off(self, address: str) -> None:
        """Switch the machine off; on return nothing of it runs any more."""
        ...

    def reboot(self, address: str) -> None:
        """Reset the machine, or switch it on if it was off. Only a new boot id proves it."""
        ...

    def power_state(self, address: str) -> PowerState:
        """Say whether the machine is on; UNKNOWN while that is changing or cannot be seen."""
        ...

    def reimage(self, address: str, guard: Guard = unguarded) -> str:
        """Wipe the disk, make a new host key, switch on; returns the new public key (``ssh-ed25519 ...``).

        ``guard`` is called once nobody else can change the machine, before anything is done; what it raises
        is passed on, and the machine stays as it is.
        """
        ...

    def host_key(self, address: str) -> str | None:
        """Return the public host key the provider announced for the machine, None where it cannot know it."""
        ...
