"""Who holds what: atoms, bookings, reservations, quotas, and the claim that is each machine's one lock."""

import uuid
from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, DateTime, ForeignKey, Index, String, text
from sqlalchemy.orm import Mapped, mapped_column

from database.tables.base import Base, Created, Json, TenantId


class Atom(Base):
    """The smallest bookable unit of a machine: its one `host` atom, or one GPU."""

    __tablename__ = "atoms"
    __table_args__ = (
        Index("uq_atoms_machine_id_resource_number", "machine_id", "resource", "number", unique=True),
    )

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=True)
    machine_id: Mapped[str] = mapped_column(ForeignKey("machines.id"))
    resource: Mapped[str] = mapped_column(String(64))
    number: Mapped[int] = mapped_column(default=0)


class Offer(Base):
    """A pool offered to a tenant that does not own it, and to all below it when `include_descendants`."""

    __tablename__ = "offers"

    pool_id: Mapped[str] = mapped_column(ForeignKey("pools.id"), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"), primary_key=True, index=True)
    include_descendants: Mapped[bool] = mapped_column(default=False)
    # Orders the pools that something may be placed in, the highest first.
    priority: Mapped[int] = mapped_column(default=0)
    created_by: Mapped[str] = mapped_column(String(128))
    created_at: Mapped[Created]


class Reservation(Base):
    """A tenant's set of bookings in one pool. A cluster node holds one of its own."""

    __tablename__ = "reservations"
    __table_args__ = (
        Index("ix_reservations_pool_id_state", "pool_id", "state"),
        Index("ix_reservations_expires_at", "expires_at", postgresql_where="ended_at IS NULL"),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    tenant_id: Mapped[TenantId] = mapped_column(ForeignKey("tenants.id"))
    # Whose quota rows count it: the tenant's own, or those of the one above it that the pool is offered to.
    quota_tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"))
    pool_id: Mapped[str] = mapped_column(ForeignKey("pools.id"))
    # pending | active | ending | ended
    state: Mapped[str] = mapped_column(String(16))
    # What was asked for, by resource; empty for a cluster node's, which is one whole machine.
    resources: Mapped[Json] = mapped_column(default=dict, server_default=text("'{}'"))
    created_by: Mapped[str] = mapped_column(String(128), default="", server_default="")
    created_at: Mapped[Created]
    expires_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    ended_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    ended_by: Mapped[str | None] = mapped_column(String(128))


class Booking(Base):
    """One atom held by one reservation. At most one booking of an atom is live."""

    __tablename__ = "bookings"
    __table_args__ = (
        Index("uq_bookings_live_atom", "atom_id", unique=True, postgresql_where="released_at IS NULL"),
        Index("ix_bookings_live_pool", "pool_id", "resource", postgresql_where="released_at IS NULL"),
        Index("ix_bookings_live_machine", "machine_id", postgresql_where="released_at IS NULL"),
    )

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=True)
    atom_id: Mapped[int] = mapped_column(ForeignKey("atoms.id"))
    machine_id: Mapped[str] = mapped_column(ForeignKey("machines.id"))
    reservation_id: Mapped[str] = mapped_column(ForeignKey("reservations.id"), index=True)
    tenant_id: Mapped[str] = mapped_column(String(128))
    pool_id: Mapped[str] = mapped_column(String(64))
    resource: Mapped[str] = mapped_column(String(64))
    # Whether it counts on the quota row of its resource: a host does only where its machine has no GPUs.
    counted: Mapped[bool]
    created_at: Mapped[Created]
    released_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class QuotaRow(Base):
    """How much of a resource a tenant may hold in a pool; a missing row grants 0."""

    __tablename__ = "quotas"
    __table_args__ = (
        CheckConstraint("in_use >= 0 AND in_use <= maximum", name="in_use_within_maximum"),
        CheckConstraint("maximum >= 0", name="maximum_not_negative"),
    )

    pool_id: Mapped[str] = mapped_column(ForeignKey("pools.id"), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    resource: Mapped[str] = mapped_column(String(64), primary_key=True)
    maximum: Mapped[int] = mapped_column(BigInteger)
    in_use: Mapped[int] = mapped_column(BigInteger, default=0)


class Claim(Base):
    """Which run may touch a machine. `token` only grows; the machine's supervisor refuses a lower one."""

    __tablename__ = "claims"

    machine_id: Mapped[str] = mapped_column(ForeignKey("machines.id"), primary_key=True)
    token: Mapped[int] = mapped_column(BigInteger, default=0)
    run_id: Mapped[uuid.UUID | None]
    claimed_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
