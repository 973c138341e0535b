"""Who follows a step: a number that each new follower raises, so that an earlier one can write nothing more.

Revision 0004, after 0003.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("step_runs", sa.Column("follower", sa.Integer(), server_default="1", nullable=False))


def downgrade() -> None:
    op.drop_column("step_runs", "follower")
