"""Profiles, their versions, and the content of used versions, kept for ever under its digest."""

from datetime import datetime

from sqlalchemy import DateTime, ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from database.tables.base import Base, Created, TenantId


class Profile(Base):
    """A named recipe of a tenant."""

    __tablename__ = "profiles"
    __table_args__ = (Index("uq_profiles_tenant_id_name", "tenant_id", "name", unique=True),)

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    tenant_id: Mapped[TenantId] = mapped_column(ForeignKey("tenants.id"))
    name: Mapped[str] = mapped_column(String(63))
    description: Mapped[str] = mapped_column(Text, default="")
    visibility: Mapped[str] = mapped_column(String(16), default="private")
    created_by: Mapped[str] = mapped_column(String(128))
    created_at: Mapped[Created]
    archived_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class ProfileVersion(Base):
    """A numbered version: a draft until `used_at` is set, then unchangeable (a trigger sees to it)."""

    __tablename__ = "profile_versions"

    profile_id: Mapped[str] = mapped_column(ForeignKey("profiles.id"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    content: Mapped[str] = mapped_column(Text)
    digest: Mapped[str] = mapped_column(String(71))
    created_by: Mapped[str] = mapped_column(String(128))
    created_at: Mapped[Created]
    used_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    deprecated_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class ProfileContentRow(Base):
    """Canonical content of a used version under its digest. Insert-only (a trigger sees to it)."""

    __tablename__ = "profile_contents"

    digest: Mapped[str] = mapped_column(String(71), primary_key=True)
    content: Mapped[str] = mapped_column(Text)
    created_at: Mapped[Created]
