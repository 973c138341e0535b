"""The private bridge of a site and the choice of its address range."""

import hashlib
import json
from contextlib import suppress
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from providers.sandbox.host import CommandError, command

#: Sites take their ranges from here: inside 10/8, away from the low numbers that people tend to use.
_POOL = IPv4Network("10.64.0.0/10")
_PREFIX = 20
_RETRANSMIT_MILLISECONDS = 50


def networks_in_use(except_device: str) -> list[IPv4Network]:
    """Return the IPv4 networks that this host has addresses in or routes to, but for those of one device."""
    found = [
        f"{address['local']}/{address['prefixlen']}"
        for link in _ip_json("-4", "addr")
        if link.get("ifname") != except_device
        for address in link.get("addr_info", [])
    ]
    found += [
        route["dst"]
        for route in _ip_json("-4", "route", "show", "table", "all")
        if route.get("dst", "default") != "default" and route.get("dev") != except_device
    ]
    return [IPv4Network(text, strict=False) for text in found]


def choose_subnet(seed: str, used: list[IPv4Network]) -> IPv4Network | None:
    """Choose a free range for a site, the same one for the same seed if it can be; None if none is free."""
    ranges = list(_POOL.subnets(new_prefix=_PREFIX))
    first = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4]) % len(ranges)
    for candidate in ranges[first:] + ranges[:first]:
        if not any(candidate.overlaps(network) for network in used):
            return candidate
    return None


def exists(name: str) -> bool:
    """Say whether this host has an interface of that name."""
    return Path(f"/sys/class/net/{name}").exists()


def ensure_bridge(name: str, subnet: IPv4Network) -> None:
    """Make the bridge, give it the first address of the range, switch it on; all of it may exist already."""
    gateway = subnet[1]
    if not exists(name):
        # A fixed address: else a bridge takes its ports' lowest one, and changes it as machines come and go.
        hardware = "02:70:" + ":".join(f"{byte:02x}" for byte in gateway.packed)
        command("ip", "link", "add", name, "address", hardware, "type", "bridge")
    command("ip", "addr", "replace", f"{gateway}/{subnet.prefixlen}", "dev", name)
    command("ip", "link", "set", name, "up")
    # Only quicker without it: 1 s per lost probe becomes 50 ms. Read-only in some containers.
    with suppress(OSError):
        Path(f"/proc/sys/net/ipv4/neigh/{name}/retrans_time_ms").write_text(str(_RETRANSMIT_MILLISECONDS))


def attach(bridge: str, port: str) -> None:
    """Put a running machine's host end back on the bridge, where there is such an end."""
    if exists(port):
        command("ip", "link", "set", port, "master", bridge, "up")


def remove_link(name: str) -> None:
    """Remove an interface of ours, if it is there."""
    if exists(name):
        try:
            command("ip", "link", "del", name)
        except CommandError:
            # It may have vanished by itself, with the network namespace its other end was in.
            if exists(name):
                raise


def _ip_json(*words: str) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = json.loads(command("ip", "-j", *words) or "[]")
    return answer
