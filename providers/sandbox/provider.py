"""The sandbox as a provider: management addresses are ``sandbox://NAME``."""

from providers.base import Guard, PowerState, ProviderError, unguarded
from providers.sandbox.site import SandboxSite

_SCHEME = "sandbox://"


class SandboxProvider:
    """Power and disk of the machines of one site; see Provider."""

    def __init__(self, site: SandboxSite) -> None:
        self._site = site

    def power_on(self, address: str) -> None:
        """Switch the machine on; returns once it boots."""
        self._site.power_on(_name(address))

    def power_off(self, address: str) -> None:
        """Switch the machine off; on return nothing of it runs any more."""
        self._site.power_off(_name(address))

    def reboot(self, address: str) -> None:
        """Reset the machine, or switch it on if it was off."""
        self._site.reboot(_name(address))

    def power_state(self, address: str) -> PowerState:
        """Say whether the machine is on."""
        return self._site.power_state(_name(address))

    def reimage(self, address: str, guard: Guard = unguarded) -> str:
        """Wipe the disk, make a new host key, switch on; returns the new public key."""
        return self._site.reimage(_name(address), guard)

    def host_key(self, address: str) -> str | None:
        """Return the machine's public host key."""
        return self._site.machine(_name(address)).host_key


def _name(address: str) -> str:
    if not address.startswith(_SCHEME):
        raise ProviderError(address, f"not a sandbox machine: its address must read {_SCHEME}NAME")
    return address.removeprefix(_SCHEME).rstrip("/")
