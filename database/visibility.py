"""What each tenant sees: rows of the projection, written in the transaction of what they speak of."""

from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from database.tables import Authorization, Pool, Tenant


class Kind(StrEnum):
    """What is projected."""

    POOL = "pool"
    NODE = "node"
    CLUSTER = "cluster"


def sees(tenant_id: str, kind: Kind, object_id: InstrumentedAttribute[str]) -> ColumnElement[bool]:
    """The condition under which a row of the projection joins an object that the tenant sees."""
    return and_(
        Authorization.tenant_id == tenant_id,
        Authorization.kind == kind,
        Authorization.object_id == object_id,
    )


async def show_owned(
    session: AsyncSession, tenant_id: str, kind: Kind, object_id: str, attributes: dict[str, Any]
) -> None:
    """The owner sees it, as it is now."""
    await session.execute(
        insert(Authorization)
        .values(tenant_id=tenant_id, kind=kind, object_id=object_id, owned=True, attributes=attributes)
        .on_conflict_do_update(
            index_elements=[Authorization.tenant_id, Authorization.kind, Authorization.object_id],
            set_={"attributes": attributes},
        )
    )


async def hide(session: AsyncSession, kind: Kind, object_id: str) -> None:
    """Nobody sees it any more."""
    await session.execute(
        delete(Authorization).where(Authorization.kind == kind, Authorization.object_id == object_id)
    )


# A tenant below several that the pool is offered to sees it through its own offer, else the nearest one's.
_SEEN = """
    SELECT DISTINCT ON (below.id) below.id AS tenant_id, offers.tenant_id AS through
    FROM offers
    JOIN tenants AS top ON top.id = offers.tenant_id
    JOIN tenants AS below
      ON below.id = top.id OR (offers.include_descendants AND below.ancestors @> ARRAY[top.id])
    WHERE offers.pool_id = :pool AND below.id <> :owner
    ORDER BY below.id, below.id = top.id DESC, cardinality(top.ancestors) DESC
"""
_HIDE_POOL = text(
    f"""
    DELETE FROM authorizations
    WHERE kind = 'pool' AND object_id = :pool AND tenant_id <> :owner
      AND tenant_id NOT IN (SELECT tenant_id FROM ({_SEEN}) AS seen)
    """
)
_SHOW_POOL = text(
    f"""
    INSERT INTO authorizations (tenant_id, kind, object_id, owned, through, attributes)
    SELECT tenant_id, 'pool', :pool, false, through, owners.attributes || '{{"owned": false}}'
    FROM ({_SEEN}) AS seen,
      (SELECT attributes FROM authorizations
       WHERE tenant_id = :owner AND kind = 'pool' AND object_id = :pool) AS owners
    ON CONFLICT (tenant_id, kind, object_id)
    DO UPDATE SET through = excluded.through, attributes = excluded.attributes
    """
)
_SHOW_POOLS_TO_NEW = text(
    """
    INSERT INTO authorizations (tenant_id, kind, object_id, owned, through, attributes)
    SELECT DISTINCT ON (offers.pool_id) :tenant, 'pool', offers.pool_id, false, offers.tenant_id, attributes
    FROM offers
    JOIN tenants AS top ON top.id = offers.tenant_id
    JOIN authorizations AS above
      ON above.tenant_id = top.id AND above.kind = 'pool' AND above.object_id = offers.pool_id
    WHERE offers.include_descendants AND offers.tenant_id = ANY(:ancestors)
    ORDER BY offers.pool_id, cardinality(top.ancestors) DESC
    """
)


async def show_pool(session: AsyncSession, pool: Pool, region: str) -> None:
    """Projects a pool anew for its owner and for all who see it by its offers. The caller holds its row."""
    attributes = {
        "gpuModel": pool.gpu_model,
        "class": pool.machine_class,
        "sharing": pool.sharing,
        "region": region,
        "owned": True,
    }
    await show_owned(session, pool.tenant_id, Kind.POOL, pool.id, attributes)
    await session.flush()
    for statement in (_HIDE_POOL, _SHOW_POOL):
        await session.execute(statement, {"pool": pool.id, "owner": pool.tenant_id})


async def show_pools_to_new(session: AsyncSession, tenant: Tenant) -> None:
    """A new tenant sees what is offered to one above it with all below."""
    await session.execute(_SHOW_POOLS_TO_NEW, {"tenant": tenant.id, "ancestors": tenant.ancestors})
