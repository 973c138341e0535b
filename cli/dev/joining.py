"""Brings the sandbox machines into bringup and says how far they are."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any

from cli.dev.screen import Screen
from cli.dev.site import Fleet, SandboxMachine, settled, wait_until_settled

_REMINDER = 10.0  # seconds between two lines about machines that are not ready yet
_NAMED = 5


class Joining:
    """Site, machine type, joins, and the wait until every machine is verified."""

    def __init__(self, fleet: Fleet, screen: Screen) -> None:
        self._fleet = fleet
        self._screen = screen
        self._waiting: dict[str, str] = {}

    async def bring_up(self, machines: Sequence[SandboxMachine]) -> str:
        """Returns the site's id when every machine is usable or has failed; says which have failed."""
        site = await self._fleet.ensure_site()
        await self._fleet.ensure_machine_types(machines, os.cpu_count() or 1, memory_gb())
        names = [machine.name for machine in machines]
        self._waiting = dict.fromkeys(names, "not joined")
        joined = await self._fleet.join_missing(site, machines)
        if joined:
            self._screen.line("site", f"{joined} machines joined; they are being verified")
        reminder = asyncio.create_task(self._remind())
        try:
            await wait_until_settled(self._fleet, site, names, self._on_change)
        finally:
            reminder.cancel()
        return site

    def _on_change(self, node: Mapping[str, Any]) -> None:
        name, state = str(node["name"]), str(node["state"])
        if settled(node):
            self._waiting.pop(name, None)
        else:
            self._waiting[name] = state
        if state == "failed":
            reason = str(node.get("message") or "no reason given")
            self._screen.line("site", f"{name} failed: {reason}", "bold red")

    async def _remind(self) -> None:
        while True:
            await asyncio.sleep(_REMINDER)
            few = [f"{name} ({state})" for name, state in list(self._waiting.items())[:_NAMED]]
            more = len(self._waiting) - len(few)
            rest = f" and {more} more" if more > 0 else ""
            self._screen.line("site", f"still waiting for {', '.join(few)}{rest}; see worker.log", "yellow")


def memory_gb() -> int:
    """The memory of this host in whole gigabytes, at least 1; a sandbox machine shares all of it."""
    return max(1, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**30)
