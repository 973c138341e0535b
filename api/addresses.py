"""Addresses that answers carry: as the caller reaches this API, and in the Temporal Web UI."""

import re
import uuid
from urllib.parse import quote

from fastapi import Request

from api.settings import ApiSettings
from domain.workflow_ids import operation_workflow_id

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


def workflow_url(settings: ApiSettings, operation_id: uuid.UUID) -> str | None:
    """The operation's workflow in the Web UI, when its address is known."""
    if not settings.temporal_ui:
        return None
    namespace = quote(settings.temporal_namespace, safe="")
    name = quote(operation_workflow_id(operation_id), safe="")
    return f"{settings.temporal_ui}/namespaces/{namespace}/workflows/{name}"
