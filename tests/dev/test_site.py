"""How machines are joined and awaited, against a small API in memory that keeps what it is told."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from cli.dev.site import Fleet, RefusedError, SandboxMachine, wait_until_settled

MACHINES = [SandboxMachine(f"local-{n}", f"10.0.0.{n}", 22, "root") for n in (1, 2, 3)]


class Api:
    """Sites, machine types and nodes with lists of one item a page."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.sites: list[dict[str, Any]] = []
        self.types: list[dict[str, Any]] = []
        self.nodes: list[dict[str, Any]] = []
        self.away = 0

    def fleet(self, token: str = "good") -> Fleet:
        transport = httpx.MockTransport(self.answer)
        return Fleet(httpx.AsyncClient(transport=transport, base_url="http://api"), "dev", token)

    def answer(self, request: httpx.Request) -> httpx.Response:
        if self.away:
            self.away -= 1
            raise httpx.ConnectError("refused", request=request)
        if request.headers["Authorization"] != "Bearer good":
            error = {"code": "UNAUTHENTICATED", "message": "who are you?", "details": {}}
            return httpx.Response(401, json={"error": error})
        method, body = request.url.path.removeprefix("/api/compute/"), json.loads(request.content)
        self.calls.append((method, body))
        return httpx.Response(200, json=self.result(method, body))

    def result(self, method: str, body: Mapping[str, Any]) -> dict[str, Any]:
        group, verb = method.split("/")
        items = {"sites": self.sites, "machineTypes": self.types, "nodes": self.nodes}[group]
        if verb == "list":
            at = int(body.get("cursor", "0"))
            more = str(at + 1) if at + 1 < len(items) else None
            return {"items": items[at : at + 1], "nextCursor": more}
        items.append({"id": f"{group}-{len(items)}", "state": "joining", "message": "", **body})
        return {"site": items[-1], "node": items[-1], "operationId": "op"}


async def test_site_type_and_machines_are_made_once() -> None:
    api = Api()
    for joined in (3, 0):
        fleet = api.fleet()
        site = await fleet.ensure_site()
        await fleet.ensure_machine_types(MACHINES, 2, 24)
        assert site == "sites-0"
        assert await fleet.join_missing(site, MACHINES) == joined
    made = [method for method, _ in api.calls if not method.endswith("/list")]
    assert made == ["sites/create", "machineTypes/create", *["nodes/join"] * 3]
    _, join = next(call for call in api.calls if call[0] == "nodes/join")
    assert join["bmc"] == {"address": f"sandbox://{join['name']}"}
    assert join["keySecret"] == "secret://file/ssh/local"


async def test_machines_with_gpus_join_as_a_type_that_says_so() -> None:
    api = Api()
    fleet = api.fleet()
    machines = [SandboxMachine("local-1", "10.0.0.1", 22, "root", gpus=8, gpu_model="H100")]
    await fleet.ensure_machine_types(machines, 2, 24)
    await fleet.join_missing(await fleet.ensure_site(), machines)
    sizes = {kind["name"]: (kind["gpuModel"], kind["gpuCount"]) for kind in api.types}
    assert sizes == {"sandbox": (None, 0), "sandbox-h100-8": ("H100", 8)}
    assert api.nodes[0]["machineType"] == "sandbox-h100-8"


async def test_the_wait_outlives_a_pause_of_the_api_and_ends_when_all_are_usable_or_failed() -> None:
    api = Api()
    fleet = api.fleet()
    await fleet.join_missing("sites-0", MACHINES)
    told: list[tuple[str, str, str]] = []

    def on_change(node: Mapping[str, Any]) -> None:
        told.append((node["name"], node["state"], node["message"]))
        if node["state"] == "joining" and node["name"] == "local-3":
            api.nodes[0].update(state="failed", message="no route to host")
            api.nodes[1].update(state="provisioning")
            api.nodes[2].update(state="ready")
            api.away = 2

    names = [machine.name for machine in MACHINES]
    await asyncio.wait_for(wait_until_settled(fleet, "sites-0", names, on_change), 10)
    assert ("local-1", "failed", "no route to host") in told
    assert {name for name, state, _ in told if state == "ready"} == {"local-3"}


async def test_a_refusal_says_what_was_refused_and_why() -> None:
    with pytest.raises(RefusedError, match="sites/list was refused: UNAUTHENTICATED: who are you"):
        await Api().fleet(token="bad").ensure_site()
