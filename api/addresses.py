"""Addresses that answers carry: as the caller reaches this API, and in the Temporal Web UI."""

import re
import uuid

from fastapi import Request

_HOST = re.compile(r"[A-Za-z0-9.\-_\[\]:]{1,255}\Z")


def _forwarded(request: Request, name: str) -> str:
    return request.headers.get(name, "").split(",")[0].strip()


def base_url(request: Request) -> str:
    """Scheme, host and prefix that the caller used, as the proxies in front say."""
    scheme = _forwarded(request, "x-forwarded-proto").lower()
    if scheme not in ("http", "https"):
        scheme = request.url.scheme
    host = _forwarded(request, "x-forwarded-host")
    if not _HOST.match(host):
        host = request.headers.get("host", "")
    if not _HOST.match(host):
        host = request.url.netloc
    return f"{scheme}://{host}{request.scope.get('root_path', '')}"


def operation_url(request: Request, operation_id: uuid.UUID) -> str:
    """Where the operation is polled."""
    return f"{base_url(request)}/operations/{operation_id}"


def workflow_id(operation_id: uuid.UUID) -> str:
    """The operation's workflow."""
    return f"operation/{operation_id}"


def workflow_url(ui: str, operation_id: uuid.UUID) -> str | None:
    """The operation's workflow in the Web UI, when its address is known."""
    return f"{ui}/namespaces/default/workflows/operation%2F{operation_id}" if ui else None
