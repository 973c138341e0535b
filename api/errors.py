"""Error answers: one refusal, said in the form and status of the surface that was called."""

import asyncio

from fastapi import Request, Response
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from api.answers import Answer
from api.context import correlation_id
from database.refusals import Refusal, RefusalCode

_C = RefusalCode
_COMMON = {
    _C.UNAUTHENTICATED: 401,
    _C.FORBIDDEN: 403,
    _C.NOT_FOUND: 404,
    _C.CONFLICT: 409,
    _C.INVALID_STATE: 409,
    _C.QUOTA_EXCEEDED: 409,
    _C.NO_CAPACITY: 409,
    _C.TOO_LARGE: 413,
    _C.UNAVAILABLE: 503,
    _C.INTERNAL: 500,
}
FLEET_STATUS = {**_COMMON, _C.INVALID_INPUT: 400}
# 409 is this family's word for every mistake of the caller's.
CLUSTER_STATUS = {**_COMMON, _C.INVALID_INPUT: 409}
FLEET_PREFIX = "/api/"

_EXCEPTIONS = {
    401: "AuthenticationException",
    403: "AuthorizationException",
    404: "NotFoundException",
    413: "RequestTooLargeException",
    500: "InternalException",
    503: "ServiceUnavailableException",
}


def route_path(request: Request) -> str:
    """The path without the prefix under which a proxy serves the API."""
    root: str = request.scope.get("root_path", "")
    path: str = request.scope["path"]
    return path[len(root) :] if root and path.startswith(root + "/") else path


def unavailable() -> Refusal:
    """The database cannot be reached."""
    return Refusal(
        RefusalCode.UNAVAILABLE,
        "the database does not answer; ask again in a moment, with the same requestId where there is one",
    )


def as_refusal(error: BaseException) -> Refusal | None:
    """The refusal that an exception stands for; None for a fault of this program."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, PoolTimeoutError | asyncio.TimeoutError | OSError | InterfaceError):
        return unavailable()
    if isinstance(error, OperationalError) or (
        isinstance(error, DBAPIError) and (error.connection_invalidated or _going_down(error))
    ):
        return unavailable()
    return unavailable() if _going_down(error) else None


def _going_down(error: BaseException) -> bool:
    """PostgreSQL's own word that it is starting, stopping, full or short of connections."""
    state = getattr(getattr(error, "orig", error), "sqlstate", None)
    return isinstance(state, str) and state[:2] in ("08", "53", "57")


def answer(request: Request, refusal: Refusal, *, location: str | None = None) -> Response:
    """The response that says `refusal`, on one line."""
    fleet = route_path(request).startswith(FLEET_PREFIX)
    status = refusal.status or (FLEET_STATUS if fleet else CLUSTER_STATUS)[refusal.code]
    headers = {"Location": location} if location else {}
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="bringup", Basic realm="bringup"'
    if status == 503:
        headers["Retry-After"] = "1"
    body = _fleet_body(request, refusal) if fleet else _cluster_body(request, refusal, status)
    return Answer(body, status_code=status, headers=headers)


def _fleet_body(request: Request, refusal: Refusal) -> dict[str, object]:
    error: dict[str, object] = {
        "code": refusal.code,
        "message": refusal.message,
        "details": [{"path": detail.path, "message": detail.message} for detail in refusal.details],
        "correlationId": correlation_id(request),
    }
    if refusal.operation_id is not None:
        error["operationId"] = str(refusal.operation_id)
    return {"error": error}


def _cluster_body(request: Request, refusal: Refusal, status: int) -> dict[str, object]:
    correlation = correlation_id(request)
    body: dict[str, object] = {
        "Exception": _EXCEPTIONS.get(status, "UserException"),
        "Message": refusal.message.replace("\n", " "),
        "Detail": "; ".join(f"{d.path}: {d.message}" for d in refusal.details).replace("\n", " "),
        "code": refusal.code,
        "requestId": correlation,
        "correlationId": correlation,
    }
    if refusal.operation_id is not None:
        body["operationId"] = str(refusal.operation_id)
    return body
