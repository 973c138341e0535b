"""Around every request: a correlation id, one log line, and an answer whatever is raised below."""

import re
import time
import uuid
from typing import Any

import structlog
from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.addresses import operation_url
from api.errors import answer, as_refusal, route_path
from database.refusals import Refusal, RefusalCode

_SAFE_ID = re.compile(r"[A-Za-z0-9._:-]{8,128}\Z")
_log: Any = structlog.get_logger("api")


class RequestGuard:
    """ASGI middleware. A caller's `X-Correlation-Id` is taken over when it is harmless."""

    def __init__(self, app: ASGIApp, root_path: str = "") -> None:
        self._app = app
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection of any kind; only HTTP is touched."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["root_path"] = self._root_path or scope.get("root_path", "")
        request = Request(scope, receive)
        asked = request.headers.get("x-correlation-id", "")
        correlation = asked if _SAFE_ID.match(asked) else str(uuid.uuid4())
        scope.setdefault("state", {})["correlation_id"] = correlation
        started, status = time.perf_counter(), 0

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-correlation-id", correlation.encode())]
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        except ClientDisconnect:
            # Nobody is left to answer, and nothing was done: bodies are read before a transaction begins.
            _log.info("the client hung up", correlation_id=correlation)
        except Exception as error:
            if status:
                _log.exception("the answer broke off", correlation_id=correlation)
                raise
            await _refuse(request, error, correlation)(scope, receive, send_noted)
        finally:
            _log.info(
                "request",
                method=scope["method"],
                path=route_path(request),
                status=status,
                milliseconds=round((time.perf_counter() - started) * 1_000, 1),
                correlation_id=correlation,
                client=scope["client"][0] if scope.get("client") else None,
            )


def _refuse(request: Request, error: Exception, correlation: str) -> ASGIApp:
    refusal = as_refusal(error)
    if refusal is None:
        _log.error("internal error", correlation_id=correlation, exc_info=error)
        refusal = Refusal(
            RefusalCode.INTERNAL, f"an internal error; report it with correlation id {correlation}"
        )
    elif refusal.code is RefusalCode.UNAVAILABLE:
        _log.warning("database unavailable", correlation_id=correlation, error=repr(error))
    location = operation_url(request, refusal.operation_id) if refusal.operation_id else None
    return answer(request, refusal, location=location)
