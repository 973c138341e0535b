"""A caller who asks again: while the API, or the database behind it, is away."""

import base64
import time
from typing import Any

import httpx

from tests.fixtures.dev_stack import DevStack

PATIENCE = 90.0  # seconds


class PatientClient:
    """Keeps what the API should never have answered in `wrong`."""

    def __init__(self, stack: DevStack) -> None:
        self._stack = stack
        self.wrong: list[str] = []

    def get(self, path: str) -> Any:
        """The body of an answer."""
        return self._ask("GET", path, None).json()

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """An answer below 500."""
        return self._ask("POST", path, body)

    def fleet(self, method: str, **fields: Any) -> httpx.Response:
        """An answer of a fleet method."""
        body = {"tenantId": self._stack.ready["tenant"], **fields}
        return self.post(f"/api/compute/{method}", body)

    def operation(self, operation_id: str) -> dict[str, Any]:
        body: dict[str, Any] = self.get(f"/operations/{operation_id}")
        return body

    def operations(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self.get("/operations/")
        return listed

    def nodes(self, cluster: str) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self.get(f"/clusters/{cluster}/nodes")["nodes"]
        return listed

    def machines(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self.fleet("nodes/list", limit=500).json()["items"]
        return listed

    def steps(self, operation_id: str) -> list[dict[str, Any]]:
        """Every step run of an operation; no recipe has more than a page of them."""
        page = self.fleet("operations/steps", operationId=operation_id, limit=500).json()
        assert page["nextCursor"] is None
        listed: list[dict[str, Any]] = page["items"]
        return listed

    def log(self, step_run_id: int, stream: str) -> str:
        """All that is stored of a stream; no recipe says more than one answer holds."""
        part = self.fleet("operations/logs", stepRunId=step_run_id, stream=stream).json()
        return base64.b64decode(part["dataBase64"]).decode()

    def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> httpx.Response:
        until = time.monotonic() + PATIENCE
        while True:
            said = "no answer"
            try:
                answer = self._stack.http.request(method, path, json=body)
                said = f"{answer.status_code} {answer.text[:300]}"
            except httpx.HTTPError as error:
                said = repr(error)
            else:
                if answer.status_code < 500:
                    return answer
                if answer.status_code != 503:
                    self.wrong.append(f"{method} {path}: {said}")
            assert time.monotonic() < until, f"{method} {path}: {said}"
            time.sleep(0.3)
