"""Who is asking, and whether they may: every route takes its caller from here and has it decided."""

import base64
import binascii
from dataclasses import dataclass, field

from fastapi import Request

from api.context import context_of
from database.refusals import Refusal, RefusalCode
from database.tokens import Principal, find_principal
from domain.permissions import TENANT, Permission, Resource, refused


def token_of(request: Request) -> str | None:
    """The token: a Bearer's, or the password of Basic under any user name."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer":
        return value or None
    if scheme.lower() != "basic":
        return None
    try:
        _, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return password if colon and password else None


async def authenticate(request: Request) -> Principal:
    """The principal of the request's token; Refusal UNAUTHENTICATED without a live one."""
    token = token_of(request)
    if token is not None:
        async with context_of(request).database.begin() as session:
            principal = await find_principal(session, token)
        if principal is not None:
            return principal
    raise Refusal(
        RefusalCode.UNAUTHENTICATED,
        "a valid token is needed: as Bearer, or as the password of Basic with any user name",
    )


@dataclass(slots=True)
class Caller:
    """An authenticated principal at one route, with the permission that the route asks for.

    Visibility comes before the decision, so the handler calls `authorize` once it knows what it is about;
    the unit of work of the route is rolled back when nobody decided.
    """

    principal: Principal
    permission: Permission
    tenant_id: str
    decided: bool = field(default=False)

    @property
    def name(self) -> str:
        """The actor of events."""
        return self.principal.name

    @property
    def pool_scope(self) -> str | None:
        """The only pool that items of lists may belong to; None for all."""
        return self.principal.scope.pool_id

    def authorize(self, resource: Resource = TENANT) -> None:
        """Decides about something of the acting tenant's; Refusal FORBIDDEN with the reason."""
        reason = refused(self.principal.role, self.principal.scope, self.permission, resource)
        if reason is not None:
            raise Refusal(RefusalCode.FORBIDDEN, reason)
        self.decided = True

    def answered_before(self) -> None:
        """Notes that a stored answer is repeated, which needs no second decision."""
        self.decided = True


class Undecided(RuntimeError):  # noqa: N818  # a state, named as what it is
    """A handler answered without a decision: a fault, whose transaction is rolled back."""


class Authorize:
    """The dependency that every route has: authenticates, and says which permission the route asks for."""

    def __init__(self, permission: Permission) -> None:
        self.permission = permission

    async def __call__(self, request: Request) -> Caller:
        """The caller, not decided yet."""
        principal = await authenticate(request)
        return Caller(principal, self.permission, principal.tenant_id)


def assert_decided(caller: Caller) -> None:
    """Called inside the transaction, before its commit."""
    if not caller.decided:
        raise Undecided(f"{caller.permission} was not decided")
