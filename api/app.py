"""The application: both surfaces, health, OpenAPI, and answers for what no route serves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi_offline import FastAPIOffline
from sqlalchemy import text
from starlette.exceptions import HTTPException

from api.access import authenticate
from api.answers import Answer
from api.bodies import definitions
from api.cluster import nodes, operations, status
from api.context import Context, context_of
from api.errors import answer
from api.fleet import clusters as fleet_clusters
from api.fleet import decisions as fleet_decisions
from api.fleet import nodes as fleet_nodes
from api.fleet import operations as fleet_operations
from api.fleet import pools as fleet_pools
from api.fleet import profiles as fleet_profiles
from api.fleet import reservations as fleet_reservations
from api.fleet import sites as fleet_sites
from api.fleet import tenants as fleet_tenants
from api.requests import RequestGuard
from api.routing import BODIES
from api.settings import ApiSettings
from database.refusals import Refusal, RefusalCode
from database.unit_of_work import Database

_GROUPS = (
    nodes,
    status,
    operations,
    fleet_tenants,
    fleet_sites,
    fleet_pools,
    fleet_reservations,
    fleet_nodes,
    fleet_profiles,
    fleet_clusters,
    fleet_operations,
    fleet_decisions,
)
_SECURITY = {
    "Bearer": {"type": "http", "scheme": "bearer", "description": "a token of this service"},
    "Basic": {"type": "http", "scheme": "basic", "description": "any user name, the token as password"},
}


def create_app(database: Database, settings: ApiSettings) -> FastAPI:
    """The ASGI application over an open database, which it closes when it is shut down."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await database.close()

    # Its documentation page comes with its scripts, so that it works on a host without the Internet.
    app = FastAPIOffline(
        title="bringup",
        version="0.1.0",
        description="Brings GPU machines up: the cluster API and the fleet API.",
        redirect_slashes=False,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.context = Context(database, settings)
    app.add_middleware(RequestGuard, root_path=settings.root_path)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_api_route("/healthz", healthz, methods=["GET"], tags=["health"])
    for group in _GROUPS:
        app.include_router(group.router)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


async def healthz(request: Request) -> Response:
    """200 while API and database answer; 503 otherwise. The only route that takes no token."""
    async with context_of(request).database.begin() as session:
        await session.execute(text("SELECT 1"))
    return Answer({"status": "ok", "api": "ok", "database": "ok"})


async def _no_route(request: Request, error: Exception) -> Response:
    """401 comes before 404: what exists is nobody's business who has no token."""
    status_code = error.status_code if isinstance(error, HTTPException) else 404
    try:
        await authenticate(request)
    except Refusal as unauthenticated:
        return answer(request, unauthenticated)
    if status_code == 405:
        message = f"{request.method} is not served at {request.url.path}"
        return answer(request, Refusal(RefusalCode.NOT_FOUND, message, status=405))
    return answer(request, Refusal(RefusalCode.NOT_FOUND, f"there is nothing at {request.url.path}"))


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        components = schema.setdefault("components", {})
        components["securitySchemes"] = _SECURITY
        schemas = components.setdefault("schemas", {})
        for model in BODIES:
            schemas.update(definitions(model))
        schema["security"] = [{name: []} for name in _SECURITY]
        schema["paths"]["/healthz"]["get"]["security"] = []
        app.openapi_schema = schema
    return app.openapi_schema
