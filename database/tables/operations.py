"""Operations, the runs below them, the steps below those, and their logs."""

import uuid
from datetime import date, datetime

from sqlalchemy import (
    BigInteger,
    Date,
    DateTime,
    ForeignKey,
    Index,
    LargeBinary,
    SmallInteger,
    String,
    Text,
)
from sqlalchemy.orm import Mapped, mapped_column

from database.tables.base import Base, Created, Json, TenantId


class Operation(Base):
    """What a caller asked for. Its workflow is `operation/<id>`."""

    __tablename__ = "operations"
    __table_args__ = (
        Index(
            "uq_operations_request_id",
            "tenant_id",
            "request_id",
            unique=True,
            postgresql_where="request_id IS NOT NULL",
        ),
        Index(
            "ix_operations_next_check_at",
            "next_check_at",
            postgresql_where="ended_at IS NULL",
        ),
        Index("ix_operations_tenant_id_created_at", "tenant_id", "created_at"),
    )

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    tenant_id: Mapped[TenantId] = mapped_column(ForeignKey("tenants.id"))
    cluster_id: Mapped[str | None] = mapped_column(ForeignKey("clusters.id"), index=True)
    machine_id: Mapped[str | None] = mapped_column(ForeignKey("machines.id"), index=True)
    action: Mapped[str] = mapped_column(String(32))
    request_id: Mapped[str | None] = mapped_column(String(255))
    retry_of: Mapped[uuid.UUID | None]
    state: Mapped[str] = mapped_column(String(24))
    # Why fewer nodes than asked for were added, or what a person should know; never a failure of a run.
    message: Mapped[str] = mapped_column(Text, default="")
    card: Mapped[Json | None]
    run_count: Mapped[int] = mapped_column(default=0)
    # Who asked for the end of the whole operation, if anybody did.
    canceled_by: Mapped[str | None] = mapped_column(String(128))
    created_by: Mapped[str] = mapped_column(String(128))
    created_at: Mapped[Created]
    started_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    ended_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    deadline: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    next_check_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class PlanRow(Base):
    """A compiled plan under its digest. Insert-only (a trigger sees to it)."""

    __tablename__ = "plans"

    digest: Mapped[str] = mapped_column(String(71), primary_key=True)
    content: Mapped[str] = mapped_column(Text)
    created_at: Mapped[Created]


class Run(Base):
    """One attempt to bring one node, or one machine, to its target. Survives retries of activities."""

    __tablename__ = "runs"
    __table_args__ = (
        Index("uq_runs_operation_id_position", "operation_id", "position", unique=True),
        Index("ix_runs_node_id", "node_id"),
        Index("ix_runs_machine_id", "machine_id"),
        Index("ix_runs_waiting", "node_id", "machine_id", postgresql_where="waiting IS NOT NULL"),
    )

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    operation_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("operations.id"))
    position: Mapped[int]
    # "node" | "machine": which of the two below the run brings to its target.
    kind: Mapped[str] = mapped_column(String(8))
    node_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("nodes.id"))
    machine_id: Mapped[str | None] = mapped_column(ForeignKey("machines.id"))
    name: Mapped[str] = mapped_column(String(63))
    action: Mapped[str] = mapped_column(String(32))
    # The node's generation that this run was made for.
    generation: Mapped[int] = mapped_column(BigInteger)
    state: Mapped[str] = mapped_column(String(24))
    claim_token: Mapped[int | None] = mapped_column(BigInteger)
    # A retry goes on with the plan of the run before it, at this step; all steps before it were done there.
    retry_of: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("runs.id"))
    first_step: Mapped[int] = mapped_column(default=0, server_default="0")
    # How often it was held so far: a decision is about one hold, and never about a later one.
    holds: Mapped[int] = mapped_column(default=0, server_default="0")
    # What it waits for now, in words; empty while it gets on, and once it has ended.
    waiting: Mapped[str | None] = mapped_column(Text)
    canceled_by: Mapped[str | None] = mapped_column(String(128))
    plan_digest: Mapped[str | None] = mapped_column(ForeignKey("plans.digest"))
    card: Mapped[Json | None]
    created_at: Mapped[Created]
    started_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    ended_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class StepRun(Base):
    """One attempt of one step. Sizes say how much of each stream is stored; a writer appends at them.

    `follower` counts who has followed it: only the last one may still write.
    """

    __tablename__ = "step_runs"
    __table_args__ = (
        Index("uq_step_runs_run_id_position_attempt", "run_id", "position", "attempt", unique=True),
    )

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=True)
    run_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("runs.id"))
    position: Mapped[int]
    attempt: Mapped[int]
    name: Mapped[str] = mapped_column(String(63))
    uses: Mapped[str] = mapped_column(String(32))
    machine_id: Mapped[str] = mapped_column(ForeignKey("machines.id"))
    state: Mapped[str] = mapped_column(String(24))
    # "changed" | "no-change" | "skipped" | "verify-failed", once it has ended.
    outcome: Mapped[str | None] = mapped_column(String(16))
    # What the step wrote to BRINGUP_OUTPUT, by name.
    outputs: Mapped[Json | None]
    exit_status: Mapped[int | None]
    signal: Mapped[int | None]
    card: Mapped[Json | None]
    started_at: Mapped[Created]
    ended_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    stdout_size: Mapped[int] = mapped_column(BigInteger, default=0)
    stderr_size: Mapped[int] = mapped_column(BigInteger, default=0)
    follower: Mapped[int] = mapped_column(default=1, server_default="1")


class LogChunk(Base):
    """At most 64 KiB of one stream of one step run. Partitioned by the day the step run began."""

    __tablename__ = "log_chunks"
    __table_args__ = {"postgresql_partition_by": "RANGE (day)"}  # noqa: RUF012

    step_run_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    # 1 stdout, 2 stderr
    stream: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    start: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    day: Mapped[date] = mapped_column(Date, primary_key=True)
    data: Mapped[bytes] = mapped_column(LargeBinary)
    written_at: Mapped[Created]
