"""Offers of pools, and the projection of what each tenant sees.

Revision 0006, after 0005.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_POOLS = """
INSERT INTO authorizations (tenant_id, kind, object_id, owned, attributes)
SELECT pools.tenant_id, 'pool', pools.id, true, jsonb_build_object(
    'gpuModel', gpu_model, 'class', class, 'sharing', sharing, 'region', region, 'owned', true)
FROM pools JOIN sites ON sites.id = pools.site_id
"""
_NODES = """
INSERT INTO authorizations (tenant_id, kind, object_id, owned, attributes)
SELECT machines.tenant_id, 'node', machines.id, true, jsonb_build_object(
    'siteId', machines.site_id, 'poolId', pool_id, 'machineType', machine_type, 'ownership', ownership)
FROM machines
"""
_CLUSTERS = """
INSERT INTO authorizations (tenant_id, kind, object_id, owned, attributes)
SELECT tenant_id, 'cluster', id, true, jsonb_build_object('name', name)
FROM clusters WHERE state <> 'Terminated'
"""
_COUNTED = """
UPDATE bookings SET counted = resource <> 'host' OR NOT EXISTS (
    SELECT 1 FROM atoms WHERE atoms.machine_id = bookings.machine_id AND atoms.resource <> 'host')
"""


def upgrade() -> None:
    op.create_table(
        "authorizations",
        sa.Column("tenant_id", sa.String(128), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("object_id", sa.String(64), nullable=False),
        sa.Column("owned", sa.Boolean(), nullable=False),
        sa.Column("through", sa.String(128)),
        sa.Column("attributes", postgresql.JSONB(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_authorizations_tenant_id")),
        sa.ForeignKeyConstraint(["through"], ["tenants.id"], name=op.f("fk_authorizations_through")),
        sa.PrimaryKeyConstraint("tenant_id", "kind", "object_id", name=op.f("pk_authorizations")),
    )
    op.create_index("ix_authorizations_kind_object_id", "authorizations", ["kind", "object_id"])
    op.create_table(
        "offers",
        sa.Column("pool_id", sa.String(), nullable=False),
        sa.Column("tenant_id", sa.String(), nullable=False),
        sa.Column("include_descendants", sa.Boolean(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("created_by", sa.String(128), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name=op.f("fk_offers_pool_id")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_offers_tenant_id")),
        sa.PrimaryKeyConstraint("pool_id", "tenant_id", name=op.f("pk_offers")),
    )
    op.create_index("ix_offers_tenant_id", "offers", ["tenant_id"])
    for fill in (_POOLS, _NODES, _CLUSTERS):
        op.execute(fill)
    op.add_column("reservations", sa.Column("quota_tenant_id", sa.String()))
    op.execute("UPDATE reservations SET quota_tenant_id = tenant_id")
    op.alter_column("reservations", "quota_tenant_id", nullable=False)
    op.create_foreign_key(
        op.f("fk_reservations_quota_tenant_id"), "reservations", "tenants", ["quota_tenant_id"], ["id"]
    )
    op.add_column("bookings", sa.Column("counted", sa.Boolean()))
    op.execute(_COUNTED)
    op.alter_column("bookings", "counted", nullable=False)
    op.create_index(
        "ix_bookings_live_pool",
        "bookings",
        ["pool_id", "resource"],
        postgresql_where=sa.text("released_at IS NULL"),
    )


def downgrade() -> None:
    op.drop_index("ix_bookings_live_pool", "bookings")
    op.drop_column("bookings", "counted")
    op.drop_column("reservations", "quota_tenant_id")
    op.drop_table("offers")
    op.drop_table("authorizations")
