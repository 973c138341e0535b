"""tenants.create, list; tokens.create, list, revoke: who there is, and who speaks for whom."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter
from pydantic import StringConstraints
from sqlalchemy.ext.asyncio import AsyncSession

from api.access import Caller
from api.bodies import Input
from api.cluster.records import moment
from api.context import Context
from api.fleet.fields import ListInput, Moment, PoolId, TenantId, TenantInput, TokenId, page_body
from api.fleet.methods import add_method
from database import tenants, tokens
from database.pools import find_pool
from database.refusals import Detail, Refusal, RefusalCode, invalid
from database.tables import Tenant, Token
from domain.permissions import FLEET, TENANT, Permission, Role, Scope, may_grant

router = APIRouter()

# Names of principals end up in events and messages, and are typed by people.
Principal = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@/+-]{0,127}$")]
# For how long a token may be good, where it expires at all.
LONGEST = timedelta(days=3_660)


class CreateTenant(TenantInput):
    """tenants.create; without a parent it is a root of its own, which only the fleet's may make."""

    name: TenantId
    parentTenantId: TenantId | None = None  # noqa: N815


class ListTenants(ListInput):
    """tenants.list."""


class TokenScope(Input):
    """What a token is narrowed to."""

    tenantId: TenantId | None = None  # noqa: N815
    poolId: PoolId | None = None  # noqa: N815


class CreateToken(TenantInput):
    """tokens.create; the role says what the token's bearer may do in the tenant and below it."""

    principal: Principal
    role: Annotated[str, StringConstraints(pattern=f"^({'|'.join(Role)})$")]
    scope: TokenScope = TokenScope()
    expiresAt: Moment | None = None  # noqa: N815


class ListTokens(ListInput):
    """tokens.list."""

    principal: Principal | None = None


class RevokeToken(TenantInput):
    """tokens.revoke."""

    tokenId: TokenId  # noqa: N815


def tenant_record(tenant: Tenant) -> dict[str, object]:
    """A tenant as answered."""
    return {
        "id": tenant.id,
        "parentTenantId": tenant.parent_id,
        "createdBy": tenant.created_by,
        "createdAt": moment(tenant.created_at),
    }


def token_record(token: Token) -> dict[str, object]:
    """A token as answered; its text is shown by the create only."""
    scope = Scope(**token.scope)
    return {
        "id": token.id,
        "tenantId": token.tenant_id,
        "principal": token.principal,
        "role": token.role,
        "scope": {"tenantId": scope.tenant_id, "poolId": scope.pool_id},
        "state": _state(token),
        "createdBy": token.created_by,
        "createdAt": moment(token.created_at),
        "expiresAt": moment(token.expires_at),
        "revokedAt": moment(token.revoked_at),
        "lastUsedAt": moment(token.last_used_at),
    }


def _state(token: Token) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at is not None and token.expires_at <= datetime.now(UTC) else "live"


async def create_tenant(
    context: Context, session: AsyncSession, caller: Caller, body: CreateTenant
) -> dict[str, object]:
    """Makes a tenant below another one, or a root of its own."""
    parent = None
    if body.parentTenantId is not None:
        parent = await session.get(Tenant, body.parentTenantId)
        if parent is None or caller.tenant_id not in (parent.id, *parent.ancestors):
            raise tenants.no_tenant(body.parentTenantId, "parentTenantId")
    caller.authorize(TENANT if parent else FLEET)
    if parent is not None and len(parent.ancestors) >= tenants.MOST_ANCESTORS:
        raise invalid(
            Detail("parentTenantId", f"is below {tenants.MOST_ANCESTORS} others, and no tenant may be deeper")
        )
    made = await tenants.create_tenant(session, actor=caller.name, name=body.name, parent=parent)
    return {"tenant": tenant_record(made)}


async def list_tenants(
    context: Context, session: AsyncSession, caller: Caller, body: ListTenants
) -> dict[str, object]:
    """The tenant and all below it, by id."""
    caller.authorize()
    page = await tenants.list_tenants(session, caller.tenant_id, body.page())
    return page_body(page, [tenant_record(tenant) for tenant in page.rows])


async def create_token(
    context: Context, session: AsyncSession, caller: Caller, body: CreateToken
) -> dict[str, object]:
    """Issues a token. Its text is in this answer and nowhere else, ever."""
    caller.authorize()
    role = Role(body.role)
    if not may_grant(caller.principal.role, caller.principal.scope, role):
        raise Refusal(
            RefusalCode.FORBIDDEN, f"a token of role {role} is issued by the fleet's administrators only"
        )
    await _check_scope(session, caller.tenant_id, body.scope)
    now = datetime.now(UTC)
    if body.expiresAt is not None and not now < body.expiresAt <= now + LONGEST:
        raise invalid(Detail("expiresAt", f"must be within the next {LONGEST.days:,} days"))
    token, text = await tokens.issue_token(
        session,
        tenant_id=caller.tenant_id,
        principal=body.principal,
        role=role,
        scope=Scope(body.scope.tenantId, body.scope.poolId),
        expires_at=body.expiresAt,
        actor=caller.name,
    )
    return {"token": token_record(token), "text": text}


async def _check_scope(session: AsyncSession, tenant_id: str, scope: TokenScope) -> None:
    within = tenant_id
    if scope.tenantId is not None:
        found = await session.get(Tenant, scope.tenantId)
        if found is None or tenant_id not in (found.id, *found.ancestors):
            raise tenants.no_tenant(scope.tenantId, "scope.tenantId")
        within = found.id
    if scope.poolId is not None:
        await find_pool(session, within, scope.poolId)


async def list_tokens(
    context: Context, session: AsyncSession, caller: Caller, body: ListTokens
) -> dict[str, object]:
    """The tenant's own tokens, also expired and revoked ones; never their texts."""
    caller.authorize()
    page = await tokens.list_tokens(session, caller.tenant_id, body.page(), principal=body.principal)
    return page_body(page, [token_record(token) for token in page.rows])


async def revoke_token(
    context: Context, session: AsyncSession, caller: Caller, body: RevokeToken
) -> dict[str, object]:
    """Ends a token at once; asked again it answers the same."""
    token = await tokens.find_token(session, caller.tenant_id, body.tokenId)
    caller.authorize()
    tokens.revoke_token(session, token, actor=caller.name)
    return {"token": token_record(token)}


_P = Permission
add_method(router, "tenants", "create", _P.TENANTS_MANAGE, CreateTenant, create_tenant)
add_method(router, "tenants", "list", _P.TENANTS_READ, ListTenants, list_tenants)
add_method(router, "tokens", "create", _P.TOKENS_MANAGE, CreateToken, create_token)
add_method(router, "tokens", "list", _P.TOKENS_MANAGE, ListTokens, list_tokens)
add_method(router, "tokens", "revoke", _P.TOKENS_MANAGE, RevokeToken, revoke_token)
