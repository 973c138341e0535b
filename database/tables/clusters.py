"""Clusters, their node arrays, and cluster nodes."""

import uuid
from datetime import datetime

from sqlalchemy import BigInteger, DateTime, ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from database.tables.base import Base, Created, Json, TenantId


class Cluster(Base):
    """A named set of node arrays and nodes. `state` is Started until deletion begins."""

    __tablename__ = "clusters"
    __table_args__ = (
        Index(
            "uq_clusters_live_name",
            "tenant_id",
            "name",
            unique=True,
            postgresql_where="state <> 'Terminated'",
        ),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    tenant_id: Mapped[TenantId] = mapped_column(ForeignKey("tenants.id"))
    name: Mapped[str] = mapped_column(String(63))
    state: Mapped[str] = mapped_column(String(16), default="Started")
    target_state: Mapped[str] = mapped_column(String(16), default="Started")
    version: Mapped[int] = mapped_column(Integer, default=1)
    created_by: Mapped[str] = mapped_column(String(128))
    created_at: Mapped[Created]


class NodeArray(Base):
    """A template from which nodes are made; `machine_types` empty means every type in the pool."""

    __tablename__ = "node_arrays"
    __table_args__ = (Index("uq_node_arrays_cluster_id_name", "cluster_id", "name", unique=True),)

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    cluster_id: Mapped[str] = mapped_column(ForeignKey("clusters.id"))
    name: Mapped[str] = mapped_column(String(63))
    position: Mapped[int]
    pool_id: Mapped[str] = mapped_column(ForeignKey("pools.id"), index=True)
    machine_types: Mapped[list[str]] = mapped_column(default=list)
    profile_ref: Mapped[str] = mapped_column(String(256))
    max_count: Mapped[int | None]
    max_core_count: Mapped[int | None]
    shutdown_policy: Mapped[str] = mapped_column(String(16), default="Terminate")
    subnet_id: Mapped[str] = mapped_column(String(255), default="")
    attributes: Mapped[Json] = mapped_column(default=dict)


class Node(Base):
    """A named place in a cluster, filled by a machine. Kept after its end as a tombstone."""

    __tablename__ = "nodes"
    __table_args__ = (
        Index("uq_nodes_live_name", "cluster_id", "name", unique=True, postgresql_where="removed_at IS NULL"),
        Index("ix_nodes_machine_id", "machine_id"),
    )

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    tenant_id: Mapped[str] = mapped_column(String(128))
    cluster_id: Mapped[str] = mapped_column(ForeignKey("clusters.id"))
    node_array_id: Mapped[str | None] = mapped_column(ForeignKey("node_arrays.id"), index=True)
    name: Mapped[str] = mapped_column(String(63))
    status: Mapped[str] = mapped_column(String(16))
    target_state: Mapped[str] = mapped_column(String(16))
    status_since: Mapped[Created]
    status_deadline: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    message: Mapped[str] = mapped_column(Text, default="")
    card: Mapped[Json | None]
    # Raised in every transaction that changes what is wanted; runs write only where it is still theirs.
    generation: Mapped[int] = mapped_column(BigInteger, default=1)

    machine_type: Mapped[str] = mapped_column(String(64))
    machine_id: Mapped[str | None] = mapped_column(ForeignKey("machines.id"))
    # The machine's id from the claim until the machine is given back.
    instance_id: Mapped[str | None] = mapped_column(String(64))
    reservation_id: Mapped[str | None] = mapped_column(ForeignKey("reservations.id"))
    hostname: Mapped[str | None] = mapped_column(String(255))
    private_ip: Mapped[str | None] = mapped_column(String(64))

    profile_ref: Mapped[str] = mapped_column(String(256))
    profile_digest: Mapped[str] = mapped_column(ForeignKey("profile_contents.digest"))
    placement_group_id: Mapped[str | None] = mapped_column(String(255))
    keep_alive: Mapped[bool] = mapped_column(default=False)
    fixed: Mapped[bool] = mapped_column(default=False)
    shutdown_policy: Mapped[str] = mapped_column(String(16), default="Terminate")
    attributes: Mapped[Json] = mapped_column(default=dict)
    created_at: Mapped[Created]
    updated_at: Mapped[Created]
    removed_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
