"""Sites, machine types, pools, and the machines (the fleet API's nodes) themselves."""

from datetime import datetime

from sqlalchemy import BigInteger, DateTime, Float, ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from database.tables.base import Base, Created, Json, TenantId


class Site(Base):
    """Where machines stand; a tenant's own (custom) or the platform's."""

    __tablename__ = "sites"
    __table_args__ = (Index("uq_sites_tenant_id_name", "tenant_id", "name", unique=True),)

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    tenant_id: Mapped[TenantId] = mapped_column(ForeignKey("tenants.id"))
    name: Mapped[str] = mapped_column(String(63))
    region: Mapped[str] = mapped_column(String(128))
    custom: Mapped[bool] = mapped_column(default=True)
    version: Mapped[int] = mapped_column(Integer, default=1)
    created_at: Mapped[Created]


class MachineType(Base):
    """A kind of machine, as its owner declares it."""

    __tablename__ = "machine_types"

    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    vcpu: Mapped[int]
    pcpu: Mapped[int]
    memory_gb: Mapped[float] = mapped_column(Float)
    gpu_model: Mapped[str | None] = mapped_column(String(32))
    gpu_count: Mapped[int] = mapped_column(default=0)
    infiniband: Mapped[bool] = mapped_column(default=False)
    price_per_hour: Mapped[float | None] = mapped_column(Float)
    created_at: Mapped[Created]


class Pool(Base):
    """Machines of one site under one GPU model, one sharing mode and one policy."""

    __tablename__ = "pools"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    tenant_id: Mapped[TenantId] = mapped_column(ForeignKey("tenants.id"))
    site_id: Mapped[str] = mapped_column(ForeignKey("sites.id"), index=True)
    machine_class: Mapped[str] = mapped_column("class", String(32))
    gpu_model: Mapped[str | None] = mapped_column(String(32))
    sharing: Mapped[str] = mapped_column(String(16))
    agent: Mapped[str] = mapped_column(String(16))
    provider_account_id: Mapped[str | None] = mapped_column(String(64))
    policy: Mapped[Json] = mapped_column(default=dict)
    policy_generation: Mapped[int] = mapped_column(default=1)
    version: Mapped[int] = mapped_column(default=1)
    created_by: Mapped[str] = mapped_column(String(128))
    created_at: Mapped[Created]
    archived_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class Machine(Base):
    """A physical or virtual machine that joined."""

    __tablename__ = "machines"
    __table_args__ = (
        Index("ix_machines_pool_id_state", "pool_id", "state"),
        # An address, or a management controller, belongs to one machine at a time.
        Index(
            "uq_machines_address_port", "address", "port", unique=True, postgresql_where="state <> 'retired'"
        ),
        Index(
            "uq_machines_bmc_address",
            "bmc_address",
            unique=True,
            postgresql_where="bmc_address IS NOT NULL AND state <> 'retired'",
        ),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    tenant_id: Mapped[TenantId] = mapped_column(ForeignKey("tenants.id"))
    site_id: Mapped[str] = mapped_column(ForeignKey("sites.id"), index=True)
    pool_id: Mapped[str | None] = mapped_column(ForeignKey("pools.id"))
    name: Mapped[str] = mapped_column(String(63))
    ownership: Mapped[str] = mapped_column(String(16), default="tenant")
    machine_type: Mapped[str] = mapped_column(String(64))
    address: Mapped[str] = mapped_column(String(255))
    port: Mapped[int] = mapped_column(default=22)
    ssh_user: Mapped[str] = mapped_column(String(64), default="root")
    key_secret: Mapped[str] = mapped_column(String(512))
    bmc_address: Mapped[str | None] = mapped_column(String(255))
    bmc: Mapped[Json] = mapped_column(default=dict)
    labels: Mapped[Json] = mapped_column(default=dict)

    state: Mapped[str] = mapped_column(String(16))
    state_since: Mapped[Created]
    state_deadline: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    message: Mapped[str] = mapped_column(Text, default="")
    cordons: Mapped[list[str]] = mapped_column(default=list)
    quarantined: Mapped[bool] = mapped_column(default=False)
    mismatched: Mapped[bool] = mapped_column(default=False)

    host_key: Mapped[str | None] = mapped_column(Text)
    boot_id: Mapped[str | None] = mapped_column(String(64))
    last_contact_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    hardware: Mapped[Json] = mapped_column(default=dict)
    facts: Mapped[Json] = mapped_column(default=dict)
    desired: Mapped[Json] = mapped_column(default=dict)
    observed: Mapped[Json] = mapped_column(default=dict)
    version: Mapped[int] = mapped_column(BigInteger, default=1)
    created_at: Mapped[Created]
