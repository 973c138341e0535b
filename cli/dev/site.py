"""The site `local` of sandbox machines, brought into bringup through its HTTP API."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from cli.dev.errors import DevError

TENANT = "dev"
SITE, REGION = "local", "local"
KEY_SECRET = "secret://file/ssh/local"
_POLL = 0.25  # seconds between two looks at joining machines
_JOINS_AT_ONCE = 8


class RefusedError(DevError):
    """The API answered a call with an error."""

    def __init__(self, method: str, status: int, code: str, message: str) -> None:
        self.status = status
        self.code = code
        super().__init__(f"{method} was refused: {code}: {message} (HTTP {status})")


@dataclass(frozen=True)
class SandboxMachine:
    """A machine as the sandbox provider announces it."""

    name: str
    address: str
    port: int
    user: str
    gpus: int = 0
    gpu_model: str | None = None

    @property
    def machine_type(self) -> str:
        """The type it joins as: `sandbox`, or such as `sandbox-h100-8`."""
        return f"sandbox-{self.gpu_model.lower()}-{self.gpus}" if self.gpu_model else "sandbox"


class Fleet:
    """The few calls of the fleet API that bring a site up."""

    def __init__(self, client: httpx.AsyncClient, tenant: str, token: str) -> None:
        self._client = client
        self._tenant = tenant
        self._headers = {"Authorization": f"Bearer {token}"}

    async def call(self, method: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Calls `group/method`; raises `RefusedError`, or httpx's `TransportError` when the API is away."""
        answer = await self._client.post(
            f"/api/compute/{method}", json={"tenantId": self._tenant, **body}, headers=self._headers
        )
        if answer.is_success:
            return dict(answer.json())
        raise _refusal(method, answer)

    async def ensure_site(self) -> str:
        """The id of site `local`, made if need be."""
        for site in await self._list("sites/list", {}):
            if site["name"] == SITE:
                return str(site["id"])
        made = await self.call("sites/create", {"name": SITE, "region": REGION})
        return str(made["site"]["id"])

    async def ensure_machine_types(
        self, machines: Sequence[SandboxMachine], vcpu: int, memory_gb: int
    ) -> None:
        """Makes the machine types that these machines join as, and plain `sandbox`, if need be."""
        known = {kind["name"] for kind in await self._list("machineTypes/list", {})}
        wanted = {machine.machine_type: (machine.gpus, machine.gpu_model) for machine in machines}
        for name, (gpus, model) in {"sandbox": (0, None), **wanted}.items():
            if name not in known:
                size = {"vcpu": vcpu, "memoryGb": memory_gb, "gpuCount": gpus, "gpuModel": model}
                await self.call("machineTypes/create", {"name": name, **size})

    async def machines(self, site: str) -> dict[str, dict[str, Any]]:
        """The machines of a site by name."""
        return {str(node["name"]): node for node in await self._list("nodes/list", {"siteId": site})}

    async def join_missing(self, site: str, machines: Sequence[SandboxMachine]) -> int:
        """Joins the machines that the site does not know yet; returns how many."""
        known = await self.machines(site)
        missing = [machine for machine in machines if machine.name not in known]
        limit = asyncio.Semaphore(_JOINS_AT_ONCE)

        async def join(machine: SandboxMachine) -> None:
            async with limit:
                await self._join(site, machine)

        await asyncio.gather(*(join(machine) for machine in missing))
        return len(missing)

    async def _join(self, site: str, machine: SandboxMachine) -> None:
        await self.call(
            "nodes/join",
            {
                "siteId": site,
                "name": machine.name,
                "address": machine.address,
                "port": machine.port,
                "user": machine.user,
                "keySecret": KEY_SECRET,
                "machineType": machine.machine_type,
                "bmc": {"address": f"sandbox://{machine.name}"},
            },
        )

    async def _list(self, method: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            answer = await self.call(method, {**body, "cursor": cursor} if cursor else body)
            items += answer["items"]
            cursor = answer.get("nextCursor")
            if not cursor:
                return items


async def wait_until_settled(
    fleet: Fleet, site: str, names: Sequence[str], on_change: Callable[[dict[str, Any]], None]
) -> None:
    """Returns when all the named machines are usable or failed; tells `on_change` of each change of state.

    A failed machine is not waited for: it must not keep the others from being used. A pause of the API is
    waited out.
    """
    seen: dict[str, Any] = {}
    while True:
        try:
            known = await fleet.machines(site)
        except (httpx.TransportError, RefusedError) as error:
            if isinstance(error, RefusedError) and error.status < 500:
                raise
            await asyncio.sleep(_POLL)
            continue
        for node in changed(seen, known, names):
            on_change(node)
        if all(settled(known.get(name)) for name in names):
            return
        await asyncio.sleep(_POLL)


def settled(node: Mapping[str, Any] | None) -> bool:
    """Whether a machine's verification has ended, well or not, now or in an earlier life of this site."""
    return node is not None and node["state"] not in ("joining", "verifying")


def changed(
    seen: dict[str, Any], known: Mapping[str, dict[str, Any]], names: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """The named machines whose state or message differs from `seen`, which is brought up to date."""
    for name in names:
        node = known.get(name)
        if node is None:
            continue
        now = (node["state"], node.get("message"))
        if seen.get(name) != now:
            seen[name] = now
            yield node


def _refusal(method: str, answer: httpx.Response) -> RefusedError:
    try:
        error = answer.json()["error"]
        return RefusedError(method, answer.status_code, str(error["code"]), str(error["message"]))
    except (ValueError, KeyError, TypeError):
        return RefusedError(method, answer.status_code, "unreadable answer", answer.text[:200])
