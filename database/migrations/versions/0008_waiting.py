"""What a live run waits for, so that callers see it before it is given up.

Revision 0008, after 0007.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("waiting", sa.Text()))
    # Few runs wait at any time; every node's record looks here.
    op.create_index(
        "ix_runs_waiting",
        "runs",
        ["node_id", "machine_id"],
        postgresql_where=sa.text("waiting IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("ix_runs_waiting", "runs")
    op.drop_column("runs", "waiting")
