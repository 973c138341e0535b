"""The HTTP API as the commands call it. Nothing else of bringup is known here."""

import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx

from cli.connection import Connection
from cli.errors import CliError, RefusedError, UnreachableError

_TIMEOUT = 60.0  # seconds; a create of many nodes is answered well within
_UNAVAILABLE = frozenset({502, 503, 504})
_PAGE = 500

Object = dict[str, Any]


class Client:
    """One connection to the API. Every call raises `UnreachableError` or `RefusedError`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        try:
            self._http = httpx.Client(
                base_url=connection.api.rstrip("/"),
                headers={"Authorization": f"Bearer {connection.token}"},
                timeout=httpx.Timeout(_TIMEOUT, connect=5.0),
                trust_env=False,  # a proxy for the Internet is not one for an API on this network
                verify=ssl.create_default_context(),  # the system's authorities, or SSL_CERT_FILE's
            )
        except (httpx.InvalidURL, UnicodeEncodeError) as error:
            raise CliError(f"the address {connection.api} or the token cannot be used: {error}") from None

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def fleet(self, method: str, body: Mapping[str, Any] | None = None) -> Object:
        """Calls `group/method` of the fleet API for the connection's tenant."""
        sent = {"tenantId": self.connection.tenant, **(body or {})}
        return self._object("POST", f"/api/compute/{method}", sent)

    def fleet_list(
        self, method: str, body: Mapping[str, Any] | None = None, limit: int | None = None
    ) -> list[Object]:
        """All items of a list, page after page, or the first `limit`."""
        items: list[Object] = []
        cursor: str | None = None
        while True:
            left = _PAGE if limit is None else min(_PAGE, limit - len(items))
            page = {**(body or {}), "limit": left, **({"cursor": cursor} if cursor else {})}
            answer = self.fleet(method, page)
            items += answer["items"]
            cursor = answer.get("nextCursor")
            if not cursor or (limit is not None and len(items) >= limit):
                return items

    def pools(self) -> list[Object]:
        """All pools; their list has no pages."""
        return list(self.fleet("pools/list")["pools"])

    def nodes(self, cluster: str, operation: str | None = None) -> list[Object]:
        """A cluster's node records, or those that one operation is about."""
        query = {"operation": operation} if operation else {}
        answer = self._object("GET", f"/clusters/{_part(cluster)}/nodes", None, query)
        return list(answer["nodes"])

    def create_nodes(self, cluster: str, body: Mapping[str, Any]) -> Object:
        """Asks for nodes; the answer names the operation."""
        return self._object("POST", f"/clusters/{_part(cluster)}/nodes/create", body)

    def terminate_nodes(self, cluster: str, body: Mapping[str, Any]) -> Object:
        """Asks for the end of nodes; the answer names the operation and says what became of each."""
        return self._object("POST", f"/clusters/{_part(cluster)}/nodes/terminate", body)

    def operation(self, operation_id: str) -> Object:
        """One operation with the progress of each node or machine."""
        return self._object("GET", f"/operations/{_part(operation_id)}", None)

    def _object(
        self,
        verb: str,
        path: str,
        body: Mapping[str, Any] | None,
        query: Mapping[str, str] | None = None,
    ) -> Object:
        try:
            answer = self._http.request(verb, path, json=body, params=query)
        except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            where = f"{self.connection.api} (from {self.connection.source})"
            said = f"{where} is no address of an API, such as http://127.0.0.1:8080: {error}"
            raise CliError(said) from None
        except httpx.HTTPError as error:
            raise UnreachableError(self._unreachable(error)) from None
        if answer.status_code in _UNAVAILABLE:
            raise UnreachableError(f"the API cannot serve now: {_refusal(answer)}")
        if answer.is_success:
            try:
                return dict(answer.json())
            except (ValueError, TypeError):
                pass
        raise _refusal(answer)

    def _unreachable(self, error: httpx.HTTPError) -> str:
        where = f"{self.connection.api} (from {self.connection.source})"
        reason = str(error) or type(error).__name__
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return f"cannot reach the API at {where}: {reason}; is `bringup dev` running?"
        return (
            f"no answer from the API at {where}: {reason}; the request may have been carried out all the "
            "same: bringup operations list"
        )


def _part(name: str) -> str:
    return quote(name, safe="")


def _refusal(answer: httpx.Response) -> RefusedError:
    """Either surface's error body in one line: the message, then each problem by its path."""
    try:
        body = answer.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        text = answer.text.strip()[:300] or answer.reason_phrase
        status = answer.status_code
        return RefusedError(status, "", f"HTTP {status} from {answer.url}, not understood: {text}")
    error = body["error"] if isinstance(body.get("error"), dict) else body
    code = str(error.get("code", ""))
    message = str(error.get("message") or error.get("Message") or error.get("detail") or "no reason given")
    details = [
        f"{one.get('path')}: {one.get('message')}"
        for one in error.get("details") or []
        if str(one.get("message")) not in message
    ]
    if error.get("Detail") and str(error["Detail"]) not in message:
        details.append(str(error["Detail"]))
    line = f"{message} ({'; '.join(details)})" if details else message
    operation_id = body.get("operationId") or error.get("operationId")
    if operation_id and str(operation_id) not in line:
        line += f"; see operation {operation_id}"
    if answer.status_code >= 500 and error.get("correlationId"):
        line += f" [correlation id {error['correlationId']}]"
    return RefusedError(answer.status_code, code, f"{code or answer.status_code}: {line}")
