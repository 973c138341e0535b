"""Reservations that callers make: what was asked for, by whom, until when, and who ended it.

Revision 0007, after 0006.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for column in (
        sa.Column("resources", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("created_by", sa.String(128), server_default="", nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True)),
        sa.Column("ended_by", sa.String(128)),
    ):
        op.add_column("reservations", column)
    op.create_index(
        "ix_reservations_expires_at",
        "reservations",
        ["expires_at"],
        postgresql_where=sa.text("ended_at IS NULL"),
    )


def downgrade() -> None:
    op.drop_index("ix_reservations_expires_at", "reservations")
    for column in ("ended_by", "expires_at", "created_by", "resources"):
        op.drop_column("reservations", column)
