"""Tokens: random, shown once, stored only as a hash."""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from database.tables import Token
from domain.ids import new_id
from domain.permissions import Role

PREFIX = "bup_"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is asking, as the token says."""

    token_id: str
    tenant_id: str
    name: str
    role: Role


def token_hash(text: str) -> bytes:
    """What is stored of a token. It is 256 random bits, so a plain digest cannot be guessed back."""
    return hashlib.sha256(text.encode()).digest()


async def issue_token(
    session: AsyncSession, *, tenant_id: str, principal: str, role: Role, expires_at: datetime | None = None
) -> str:
    """Stores a new token and returns its text, which cannot be read again."""
    text = PREFIX + secrets.token_urlsafe(32)
    session.add(
        Token(
            id=new_id("tok"),
            tenant_id=tenant_id,
            principal=principal,
            role=role,
            scope={},
            hash=token_hash(text),
            expires_at=expires_at,
        )
    )
    await session.flush()
    return text


async def find_principal(session: AsyncSession, text: str) -> Principal | None:
    """The principal of a live token; None when it is unknown, expired or revoked."""
    row = (
        await session.execute(
            select(Token.id, Token.tenant_id, Token.principal, Token.role).where(
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
    return Principal(token_id=row.id, tenant_id=row.tenant_id, name=row.principal, role=Role(row.role))
