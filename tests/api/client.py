"""Calls as the clients in the field send them: Basic credentials, no Content-Type, no Accept."""

import base64
import json
from typing import Any

import httpx


def basic(token: str) -> dict[str, str]:
    """Preemptive Basic credentials, the token as password."""
    return {"Authorization": "Basic " + base64.b64encode(f"anyone:{token}".encode()).decode()}


class Api:
    """The API as one tenant's client sees it."""

    def __init__(self, client: httpx.AsyncClient, token: str, tenant: str) -> None:
        self.client = client
        self.token = token
        self.tenant = tenant

    def as_token(self, token: str) -> "Api":
        """The same API with another token."""
        return Api(self.client, token, self.tenant)

    async def get(self, path: str, **headers: str) -> httpx.Response:
        """A GET."""
        return await self.client.get(path, headers={**basic(self.token), **headers})

    async def post(self, path: str, body: object, **headers: str) -> httpx.Response:
        """A POST of JSON, or of raw bytes."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.client.post(path, content=content, headers={**basic(self.token), **headers})

    async def fleet(self, method: str, **values: Any) -> httpx.Response:
        """A method such as `pools.create`, for the client's tenant unless told otherwise."""
        body = {"tenantId": self.tenant, **values}
        return await self.post("/api/compute/" + method.replace(".", "/"), body)

    async def create(self, *sets: dict[str, Any], cluster: str = "demo", **body: Any) -> httpx.Response:
        """Nodes of these sets."""
        return await self.post(f"/clusters/{cluster}/nodes/create", {"sets": list(sets), **body})

    async def terminate(self, cluster: str = "demo", **selectors: Any) -> httpx.Response:
        """Terminates what the selectors mean."""
        return await self.post(f"/clusters/{cluster}/nodes/terminate", selectors)

    async def nodes(self, query: str = "", cluster: str = "demo") -> list[dict[str, Any]]:
        """The node records."""
        answer = await self.get(f"/clusters/{cluster}/nodes{query}")
        assert answer.status_code == 200, answer.text
        records: list[dict[str, Any]] = answer.json()["nodes"]
        return records

    async def status(self, query: str = "", cluster: str = "demo") -> dict[str, Any]:
        """The cluster's status."""
        answer = await self.get(f"/clusters/{cluster}/status{query}")
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body


def fleet_error(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The `error` of a fleet answer, once it is what was expected."""
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert error["code"] == code, answer.text
    assert error["message"]
    return error


def paths(error: dict[str, Any]) -> set[str]:
    """The paths of all problems."""
    return {detail["path"] for detail in error["details"]}
