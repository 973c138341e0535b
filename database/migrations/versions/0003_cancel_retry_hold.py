"""Cancel, retry and hold: who asked for an end, where a retry goes on, what a held run waits for.

Revision 0003, after 0002.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("operations", sa.Column("canceled_by", sa.String(length=128), nullable=True))
    op.add_column("runs", sa.Column("retry_of", sa.Uuid(), nullable=True))
    op.add_column("runs", sa.Column("first_step", sa.Integer(), server_default="0", nullable=False))
    op.add_column("runs", sa.Column("holds", sa.Integer(), server_default="0", nullable=False))
    op.add_column("runs", sa.Column("canceled_by", sa.String(length=128), nullable=True))
    op.create_foreign_key("fk_runs_retry_of", "runs", "runs", ["retry_of"], ["id"])
    op.add_column("outbox", sa.Column("run_id", sa.Uuid(), nullable=True))
    op.add_column("outbox", sa.Column("hold", sa.Integer(), nullable=True))
    op.create_foreign_key("fk_outbox_run_id", "outbox", "runs", ["run_id"], ["id"])
    op.add_column("step_runs", sa.Column("outputs", postgresql.JSONB(astext_type=sa.Text()), nullable=True))
    # A step without a check counts as a change: nothing can say otherwise.
    op.execute("UPDATE step_runs SET outcome = 'changed' WHERE outcome = 'ran'")


def downgrade() -> None:
    op.drop_column("step_runs", "outputs")
    op.drop_constraint("fk_outbox_run_id", "outbox", type_="foreignkey")
    op.drop_column("outbox", "hold")
    op.drop_column("outbox", "run_id")
    op.drop_constraint("fk_runs_retry_of", "runs", type_="foreignkey")
    op.drop_column("runs", "canceled_by")
    op.drop_column("runs", "holds")
    op.drop_column("runs", "first_step")
    op.drop_column("runs", "retry_of")
    op.drop_column("operations", "canceled_by")
