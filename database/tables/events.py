"""What happened (events) and what must still be told to the workflow engine (outbox)."""

import uuid
from datetime import datetime

from sqlalchemy import BigInteger, DateTime, ForeignKey, Index, LargeBinary, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from database.tables.base import Base, Created, Json, TenantId


class Event(Base):
    """Written in the transaction of what it speaks of; one chainer sets `sequence` and `hash` later."""

    __tablename__ = "events"
    __table_args__ = (Index("ix_events_subject", "subject"),)

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=True)
    tenant_id: Mapped[TenantId]
    type: Mapped[str] = mapped_column(String(64))
    subject: Mapped[str] = mapped_column(String(128))
    actor: Mapped[str] = mapped_column(String(128))
    data: Mapped[Json] = mapped_column(default=dict)
    at: Mapped[Created]
    sequence: Mapped[int | None] = mapped_column(BigInteger, unique=True)
    hash: Mapped[bytes | None] = mapped_column(LargeBinary(32))


PROVE = "prove"


class Outbox(Base):
    """What the dispatcher must tell the workflow engine; one operation's rows in their order.

    `desired` is `running` (start the operation's workflow), `canceled` (of the operation, or of one run),
    `resume` or `abort` of one run's hold number `hold`, and PROVE: see to it that an ended run has left
    nothing on its machine.
    """

    __tablename__ = "outbox"
    __table_args__ = (Index("ix_outbox_due", "due_at", postgresql_where="dispatched_at IS NULL"),)

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=True)
    operation_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("operations.id"), index=True)
    desired: Mapped[str] = mapped_column(String(16))
    run_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("runs.id"))
    hold: Mapped[int | None]
    created_at: Mapped[Created]
    due_at: Mapped[Created]
    dispatched_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    attempts: Mapped[int] = mapped_column(default=0)
    last_error: Mapped[str] = mapped_column(Text, default="")
