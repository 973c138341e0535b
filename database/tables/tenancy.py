"""Tenants and the tokens of their principals."""

from datetime import datetime

from sqlalchemy import CheckConstraint, DateTime, ForeignKey, Index, LargeBinary, String, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from database.tables.base import Base, Created, Json, TenantId


class Tenant(Base):
    """A tenant; tenants form a tree. `ancestors` are all above it, the root first, and never change."""

    __tablename__ = "tenants"
    __table_args__ = (
        Index("ix_tenants_ancestors", "ancestors", postgresql_using="gin"),
        CheckConstraint("NOT id = ANY (ancestors)", name="not_below_itself"),
        CheckConstraint("parent_id IS NOT DISTINCT FROM ancestors[cardinality(ancestors)]", name="parent"),
    )

    id: Mapped[str] = mapped_column(String(128), primary_key=True)
    parent_id: Mapped[str | None] = mapped_column(ForeignKey("tenants.id"), index=True)
    ancestors: Mapped[list[str]] = mapped_column(
        ARRAY(String(128)), default=list, server_default=text("'{}'")
    )
    created_by: Mapped[str] = mapped_column(String(128), default="", server_default="")
    created_at: Mapped[Created]


class Authorization(Base):
    """What a tenant may see: the projection that visibility and decisions are taken from.

    One row for each tenant and object (`kind` is pool, node or cluster), written in the transaction of what
    it speaks of. `through` is the tenant whose offer shows a pool that is not owned, and whose quota counts:
    this tenant itself, or one above it.
    """

    __tablename__ = "authorizations"
    __table_args__ = (Index("ix_authorizations_kind_object_id", "kind", "object_id"),)

    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    object_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    owned: Mapped[bool]
    through: Mapped[str | None] = mapped_column(ForeignKey("tenants.id"))
    attributes: Mapped[Json] = mapped_column(default=dict)


class Token(Base):
    """A token, stored only as the SHA-256 of its text."""

    __tablename__ = "tokens"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    tenant_id: Mapped[TenantId] = mapped_column(ForeignKey("tenants.id"))
    principal: Mapped[str] = mapped_column(String(128))
    role: Mapped[str] = mapped_column(String(32))
    scope: Mapped[Json] = mapped_column(default=dict)
    hash: Mapped[bytes] = mapped_column(LargeBinary(32), unique=True)
    created_by: Mapped[str] = mapped_column(String(128), default="", server_default="")
    created_at: Mapped[Created]
    expires_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    revoked_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    last_used_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
