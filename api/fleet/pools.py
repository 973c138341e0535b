"""pools.create, get, list, capacity, offer, unoffer; capacity.byPool."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field, StringConstraints
from sqlalchemy.ext.asyncio import AsyncSession

from api.access import Caller
from api.cluster.records import moment
from api.context import Context
from api.fleet.fields import AccountId, GpuModel, IdempotencyKey, PoolId, SiteId, TenantId, TenantInput
from api.fleet.methods import add_method
from database import offers, pools
from database.capacity import GPU, HOST, ResourceCount, count_resources
from database.quotas import quotas_of
from database.refusals import Detail, invalid
from database.sites import find_site
from database.tables import QuotaRow
from domain.permissions import ITEMS, Permission, of_pool

router = APIRouter()

_Resource = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9._-]{0,63}$")]
_Amount = Annotated[int, Field(ge=0, le=pools.UNLIMITED)]
_POLICY_KEYS = frozenset(
    {
        "singleTenant",
        "platformOperated",
        "hugepages",
        "kernelModules",
        "sysctl",
        "sharing",
        "migLayout",
        "kubernetes",
        "prewarmImages",
    }
)


class CreatePool(TenantInput):
    """pools.create."""

    siteId: SiteId  # noqa: N815
    machine_class: Literal["metal-host", "metal-dedicated", "vps-host", "provider"] = Field(alias="class")
    gpuModel: GpuModel | None = None  # noqa: N815
    sharing: Literal["exclusive", "mig", "timeslice", "mps"] = "exclusive"
    agent: Literal["bcd", "none"] | None = None
    policy: dict[str, Any] = Field(default_factory=dict)
    ownerQuota: dict[_Resource, _Amount] | None = None  # noqa: N815
    providerAccountId: AccountId | None = None  # noqa: N815
    idempotencyKey: IdempotencyKey | None = None  # noqa: N815

    def asked(self) -> pools.NewPool:
        """With defaults filled in: agent by class, and all of `gpu` for an owner that names no quota."""
        return pools.NewPool(
            site_id=self.siteId,
            machine_class=self.machine_class,
            gpu_model=self.gpuModel,
            sharing=self.sharing,
            agent=self.agent or ("none" if self.machine_class == "provider" else "bcd"),
            owner_quota={"gpu": pools.UNLIMITED} if self.ownerQuota is None else self.ownerQuota,
            provider_account_id=self.providerAccountId,
            idempotency_key=self.idempotencyKey,
        )


class GetPool(TenantInput):
    """pools.get."""

    poolId: PoolId  # noqa: N815


class OfferPool(GetPool):
    """pools.offer; `quota` by resource. Rows that it leaves out stay as they are."""

    toTenantId: TenantId  # noqa: N815
    quota: dict[_Resource, _Amount]
    includeDescendants: bool = False  # noqa: N815
    priority: int = Field(default=0, ge=-1_000, le=1_000)


class UnofferPool(GetPool):
    """pools.unoffer."""

    toTenantId: TenantId  # noqa: N815


def pool_record(seen: pools.SeenPool, quotas: Sequence[QuotaRow]) -> dict[str, object]:
    """A pool as a tenant sees it, with the quota rows that count for it."""
    pool = seen.pool
    return {
        "id": pool.id,
        "siteId": pool.site_id,
        "class": pool.machine_class,
        "gpuModel": pool.gpu_model,
        "sharing": pool.sharing,
        "agent": pool.agent,
        "policy": pool.policy,
        "policyGeneration": pool.policy_generation,
        "providerAccountId": pool.provider_account_id,
        "version": pool.version,
        "owned": seen.owned,
        "archived": pool.archived_at is not None,
        "quotas": [
            {"resource": row.resource, "max": row.maximum, "inUse": row.in_use}
            for row in quotas
            if row.pool_id == pool.id
        ],
        "createdAt": moment(pool.created_at),
    }


def _problems(body: CreatePool) -> list[Detail]:
    problems = []
    if body.machine_class == "provider":
        if body.providerAccountId is None:
            problems.append(Detail("providerAccountId", "is required for class provider"))
        else:
            problems.append(
                Detail(
                    "providerAccountId",
                    "there is no such account: provider accounts are not served by this release",
                )
            )
        if body.agent not in (None, "none"):
            problems.append(Detail("agent", "must be none for class provider"))
    elif body.providerAccountId is not None:
        problems.append(
            Detail("providerAccountId", f"is for class provider only, not for {body.machine_class}")
        )
    if body.sharing != "exclusive":
        problems.append(
            Detail("sharing", f"{body.sharing} is not applied by this release yet; accepted: exclusive")
        )
    for key in body.policy:
        known = "is not applied by this release yet" if key in _POLICY_KEYS else "is not a known key"
        problems.append(Detail(f"policy.{key}", f"{known}; accepted: an empty policy"))
    return problems


async def create_pool(
    context: Context, session: AsyncSession, caller: Caller, body: CreatePool
) -> dict[str, object]:
    """Makes a pool at version 1 with its owner's quota rows; a retry by key returns the stored pool."""
    asked = body.asked()
    pool = await pools.stored_pool(session, caller.tenant_id, caller.name, asked)
    if pool is not None:
        caller.answered_before()
    else:
        await find_site(session, caller.tenant_id, body.siteId)
        caller.authorize()
        problems = _problems(body)
        if problems:
            raise invalid(*problems)
        pool = await pools.create_pool(session, tenant_id=caller.tenant_id, actor=caller.name, asked=asked)
    return await _shown(session, caller.tenant_id, pool.id)


async def _shown(session: AsyncSession, tenant_id: str, pool_id: str) -> dict[str, object]:
    seen = await pools.find_pool(session, tenant_id, pool_id)
    return {"pool": pool_record(seen, await quotas_of(session, tenant_id, [pool_id]))}


async def get_pool(
    context: Context, session: AsyncSession, caller: Caller, body: GetPool
) -> dict[str, object]:
    """One pool as the tenant sees it."""
    seen = await pools.find_pool(session, caller.tenant_id, body.poolId)
    caller.authorize(of_pool(seen.pool.id))
    return await _shown(session, caller.tenant_id, body.poolId)


async def list_pools(
    context: Context, session: AsyncSession, caller: Caller, body: TenantInput
) -> dict[str, object]:
    """The pools that the tenant owns or is offered; archived ones for their owner only."""
    caller.authorize(ITEMS)
    found = await pools.list_pools(session, caller.tenant_id, only=caller.pool_scope)
    rows: dict[str, list[QuotaRow]] = defaultdict(list)
    for row in await quotas_of(session, caller.tenant_id, [seen.pool.id for seen in found]):
        rows[row.pool_id].append(row)
    return {"pools": [pool_record(seen, rows[seen.pool.id]) for seen in found]}


async def pool_capacity(
    context: Context, session: AsyncSession, caller: Caller, body: GetPool
) -> dict[str, object]:
    """What the pool has of each resource: booked, usable, and held back for the time being."""
    seen = await pools.find_pool(session, caller.tenant_id, body.poolId)
    caller.authorize(of_pool(seen.pool.id))
    counted = {row.resource: row for row in (await count_resources(session, [body.poolId]))[body.poolId]}
    for resource in (HOST, GPU) if seen.pool.gpu_model else (HOST,):
        counted.setdefault(resource, ResourceCount(resource, 0, 0, 0, 0))
    observed = moment(datetime.now(UTC))
    return {
        "capacity": [
            {
                "resource": row.resource,
                "total": row.total,
                "usable": row.usable,
                "booked": row.booked,
                "heldBack": row.held_back,
                "observedAt": observed,
            }
            for _, row in sorted(counted.items())
        ]
    }


async def offer_pool(
    context: Context, session: AsyncSession, caller: Caller, body: OfferPool
) -> dict[str, object]:
    """Lets another tenant use the pool, with a quota; again for the same one it changes the offer."""
    pool = await pools.own_pool(session, caller.tenant_id, body.poolId)
    caller.authorize(of_pool(pool.id))
    asked = offers.NewOffer(body.toTenantId, body.quota, body.includeDescendants, body.priority)
    await offers.offer_pool(session, actor=caller.name, pool=pool, asked=asked)
    return await _shown(session, body.toTenantId, pool.id)


async def unoffer_pool(
    context: Context, session: AsyncSession, caller: Caller, body: UnofferPool
) -> dict[str, object]:
    """Withdraws an offer: nothing new of that tenant fits, and what it holds it keeps."""
    pool = await pools.own_pool(session, caller.tenant_id, body.poolId)
    caller.authorize(of_pool(pool.id))
    if body.toTenantId == pool.tenant_id:
        raise invalid(Detail("toTenantId", "is the pool's owner, who is not offered what it owns"))
    removed = await offers.unoffer_pool(session, actor=caller.name, pool=pool, tenant_id=body.toTenantId)
    return {"removed": removed}


add_method(router, "pools", "create", Permission.POOLS_CREATE, CreatePool, create_pool)
add_method(router, "pools", "get", Permission.POOLS_READ, GetPool, get_pool)
add_method(router, "pools", "list", Permission.POOLS_READ, TenantInput, list_pools)
add_method(router, "pools", "capacity", Permission.CAPACITY_READ, GetPool, pool_capacity)
add_method(router, "capacity", "byPool", Permission.CAPACITY_READ, GetPool, pool_capacity)
add_method(router, "pools", "offer", Permission.POOLS_SHARE, OfferPool, offer_pool)
add_method(router, "pools", "unoffer", Permission.POOLS_SHARE, UnofferPool, unoffer_pool)
