"""How a method of the fleet API is made: a route that answers a JSON object with 200."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from fastapi import APIRouter, Request, Response
from sqlalchemy.ext.asyncio import AsyncSession

from api.access import Caller
from api.answers import Answer
from api.context import Context, context_of
from api.fleet.fields import TenantInput
from api.routing import add_writer
from database.tenants import act_for
from domain.permissions import Permission

I = TypeVar("I", bound=TenantInput)  # noqa: E741  # the input
Method = Callable[[Context, AsyncSession, Caller, I], Awaitable[dict[str, object]]]


def add_method(
    router: APIRouter, group: str, name: str, permission: Permission, model: type[I], method: Method[I]
) -> None:
    """`POST /api/compute/<group>/<name>`. The tenant is checked first; the method decides for itself."""

    async def handler(request: Request, session: AsyncSession, caller: Caller, body: I) -> Response:
        await act_for(session, caller.principal, body.tenantId)
        caller.tenant_id = body.tenantId
        return Answer(await method(context_of(request), session, caller, body))

    handler.__name__ = f"{group}.{name}"
    handler.__doc__ = method.__doc__
    add_writer(router, f"/api/compute/{group}/{name}", permission, model, handler, tags=[f"fleet {group}"])
