"""Tenants know all above them; tokens and tenants know who made them.

Revision 0005, after 0004.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_ABOVE = """
WITH RECURSIVE tree (id, above) AS (
    SELECT id, ARRAY[]::varchar[] FROM tenants WHERE parent_id IS NULL
    UNION ALL
    SELECT tenants.id, tree.above || tree.id FROM tenants JOIN tree ON tenants.parent_id = tree.id
)
UPDATE tenants SET ancestors = tree.above FROM tree WHERE tree.id = tenants.id
"""


def upgrade() -> None:
    op.add_column(
        "tenants",
        sa.Column("ancestors", sa.ARRAY(sa.String(128)), server_default=sa.text("'{}'"), nullable=False),
    )
    op.execute(_ABOVE)
    for table in ("tenants", "tokens"):
        op.add_column(table, sa.Column("created_by", sa.String(128), server_default="", nullable=False))
    op.create_index("ix_tenants_ancestors", "tenants", ["ancestors"], postgresql_using="gin")
    op.create_index("ix_tenants_parent_id", "tenants", ["parent_id"])
    op.create_check_constraint(op.f("ck_tenants_not_below_itself"), "tenants", "NOT id = ANY (ancestors)")
    op.create_check_constraint(
        op.f("ck_tenants_parent"),
        "tenants",
        "parent_id IS NOT DISTINCT FROM ancestors[cardinality(ancestors)]",
    )


def downgrade() -> None:
    op.drop_constraint(op.f("ck_tenants_parent"), "tenants")
    op.drop_constraint(op.f("ck_tenants_not_below_itself"), "tenants")
    op.drop_index("ix_tenants_parent_id", "tenants")
    op.drop_index("ix_tenants_ancestors", "tenants")
    for table in ("tokens", "tenants"):
        op.drop_column(table, "created_by")
    op.drop_column("tenants", "ancestors")
