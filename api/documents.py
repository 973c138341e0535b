"""What the OpenAPI document says of a route beyond its body: parameters, and the errors it may answer."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from api.errors import CLUSTER_STATUS, FLEET_PREFIX, FLEET_STATUS

_MEANING = {
    400: "the input is not as described; every problem with its path",
    401: "no token, or one that is unknown, expired or revoked",
    403: "the token's role may not do this",
    404: "there is no such thing that this tenant may see",
    409: "the request cannot be done as it is; the message says why",
    413: "the body is too large",
    503: "the database does not answer; ask again in a moment",
}


class ErrorDetail(BaseModel):
    """One problem of an input."""

    path: str
    message: str


class FleetFailure(BaseModel):
    """What went wrong, by a code for programs and a message for people."""

    code: str
    message: str
    details: list[ErrorDetail]
    correlationId: str  # noqa: N815
    operationId: str | None = None  # noqa: N815


class FleetError(BaseModel):
    """Every error of the fleet API."""

    error: FleetFailure


class ClusterError(BaseModel):
    """Every error of the cluster API, flat and on one line."""

    Exception: str
    Message: str
    Detail: str
    code: str
    requestId: str  # noqa: N815
    correlationId: str  # noqa: N815
    operationId: str | None = None  # noqa: N815


def responses(path: str, *, also: tuple[int, ...] = ()) -> dict[int | str, dict[str, Any]]:
    """The error answers of a route, with the body of its surface."""
    fleet = path.startswith(FLEET_PREFIX)
    statuses = {*(FLEET_STATUS if fleet else CLUSTER_STATUS).values(), *also} - {500}
    model = FleetError if fleet else ClusterError
    return {status: {"model": model, "description": _MEANING[status]} for status in sorted(statuses)}


def parameters(path: str, query: Mapping[str, str]) -> list[dict[str, Any]]:
    """The parameters in `path`, and optional ones of the query with what each does."""
    text = {"type": "string"}
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": text}
        for name in re.findall(r"{(\w+)}", path)
    ]
    in_query = [
        {"name": name, "in": "query", "required": False, "description": does, "schema": text}
        for name, does in query.items()
    ]
    return [*in_path, *in_query]
