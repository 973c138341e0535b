"""How a route is made: authenticated, its body read, one transaction, decided, committed, answered."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

from api.access import Authorize, Caller, assert_decided
from api.bodies import documented, read_body
from api.context import context_of
from api.documents import parameters, responses
from domain.permissions import Permission

B = TypeVar("B", bound=BaseModel)
Reader = Callable[[Request, AsyncSession, Caller], Awaitable[Response]]
Writer = Callable[[Request, AsyncSession, Caller, B], Awaitable[Response]]
NO_QUERY: Mapping[str, str] = {}
# Models of bodies, which OpenAPI cannot find by itself because they are read by hand.
BODIES: list[type[BaseModel]] = []


def add_reader(
    router: APIRouter,
    path: str,
    permission: Permission,
    handler: Reader,
    *,
    query: Mapping[str, str] = NO_QUERY,
    **options: Any,
) -> None:
    """A GET route. `handler` answers inside one transaction and must have its caller decided.

    `query` names the optional parameters of the query and says what each does.
    """

    async def endpoint(
        request: Request, caller: Annotated[Caller, Depends(Authorize(permission))]
    ) -> Response:
        async with context_of(request).database.begin() as session:
            response = await handler(request, session, caller)
            assert_decided(caller)
        return response

    router.add_api_route(
        path,
        endpoint,
        methods=["GET"],
        name=handler.__name__,
        summary=_summary(handler.__name__),
        description=handler.__doc__ or "",
        openapi_extra={"parameters": parameters(path, query)},
        responses=responses(path, also=(400,) if query else ()),
        **options,
    )


def _summary(name: str) -> str:
    return name if "." in name else name.replace("_", " ")


def add_writer(
    router: APIRouter,
    path: str,
    permission: Permission,
    model: type[B],
    handler: Writer[B],
    **options: Any,
) -> None:
    """A POST route with a body of `model`, read before the transaction begins; else as `add_reader`."""

    async def endpoint(
        request: Request, caller: Annotated[Caller, Depends(Authorize(permission))]
    ) -> Response:
        body = await read_body(request, model)
        async with context_of(request).database.begin() as session:
            response = await handler(request, session, caller, body)
            assert_decided(caller)
        return response

    router.add_api_route(
        path,
        endpoint,
        methods=["POST"],
        name=handler.__name__,
        description=handler.__doc__ or "",
        summary=_summary(handler.__name__),
        openapi_extra={"parameters": parameters(path, {}), **documented(model)},
        responses=responses(path),
        **options,
    )
    BODIES.append(model)
