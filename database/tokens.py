"""Tokens: random, shown once, stored only as a hash."""

import hashlib
import secrets
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from database.events import record_event
from database.pages import Page, PageRequest, page_of
from database.refusals import not_found
from database.tables import Token
from domain.ids import new_id
from domain.permissions import Role, Scope

PREFIX = "bup_"
NO_SCOPE = Scope()


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is asking, as the token says. `tenant_id` is the topmost tenant that the token is good for."""

    token_id: str
    tenant_id: str
    name: str
    role: Role
    scope: Scope = NO_SCOPE

    @property
    def serves_fleet(self) -> bool:
        """Whether it acts for every tenant."""
        return self.role is Role.FLEET_ADMIN and not self.scope.narrows


def token_hash(text: str) -> bytes:
    """What is stored of a token. It is 256 random bits, so a plain digest cannot be guessed back."""
    return hashlib.sha256(text.encode()).digest()


async def issue_token(
    session: AsyncSession,
    *,
    tenant_id: str,
    principal: str,
    role: Role,
    scope: Scope = NO_SCOPE,
    expires_at: datetime | None = None,
    actor: str = "",
) -> tuple[Token, str]:
    """Stores a new token; returns it with its text, which cannot be read again."""
    text = PREFIX + secrets.token_urlsafe(32)
    token = Token(
        id=new_id("tok"),
        tenant_id=tenant_id,
        principal=principal,
        role=role,
        scope={name: value for name, value in asdict(scope).items() if value is not None},
        hash=token_hash(text),
        expires_at=expires_at,
        created_by=actor,
    )
    session.add(token)
    record_event(
        session,
        tenant_id=tenant_id,
        type="token.created",
        subject=f"token/{token.id}",
        actor=actor or principal,
        principal=principal,
        role=role,
    )
    await session.flush()
    return token, text


async def find_token(session: AsyncSession, tenant_id: str, token_id: str) -> Token:
    """A token of the tenant's, also one that is good no more; Refusal NOT_FOUND otherwise."""
    token = await session.scalar(
        select(Token).where(Token.id == token_id, Token.tenant_id == tenant_id).with_for_update()
    )
    if token is None:
        raise not_found(f"there is no token {token_id}")
    return token


async def list_tokens(
    session: AsyncSession, tenant_id: str, request: PageRequest, *, principal: str | None = None
) -> Page:
    """The tenant's tokens in the order in which they were made, also those that are good no more."""
    query = select(Token).where(Token.tenant_id == tenant_id)
    if principal is not None:
        query = query.where(Token.principal == principal)
    return await page_of(session, query, [Token.id], request)


def revoke_token(session: AsyncSession, token: Token, *, actor: str) -> None:
    """Ends a token at once; one that was revoked before stays as it is."""
    if token.revoked_at is not None:
        return
    token.revoked_at = datetime.now(UTC)
    record_event(
        session,
        tenant_id=token.tenant_id,
        type="token.revoked",
        subject=f"token/{token.id}",
        actor=actor,
        principal=token.principal,
    )


async def find_principal(session: AsyncSession, text: str) -> Principal | None:
    """The principal of a live token; None when it is unknown, expired or revoked."""
    row = (
        await session.execute(
            select(Token.id, Token.tenant_id, Token.principal, Token.role, Token.scope).where(
                Token.hash == token_hash(text),
                Token.revoked_at.is_(None),
                func.coalesce(Token.expires_at, func.now() + func.make_interval(1)) > func.now(),
            )
        )
    ).one_or_none()
    if row is None:
        return None
    # Once a minute is enough to see a token in use, and spares a write on each poll.
    await session.execute(
        update(Token)
        .where(
            Token.id == row.id,
            func.coalesce(Token.last_used_at, func.to_timestamp(0))
            < func.now() - func.make_interval(0, 0, 0, 0, 0, 1),
        )
        .values(last_used_at=func.now())
    )
    scope = Scope(**row.scope)
    return Principal(
        token_id=row.id,
        tenant_id=scope.tenant_id or row.tenant_id,
        name=row.principal,
        role=Role(row.role),
        scope=scope,
    )
