"""reservations.create, release, get, list: GPUs and whole machines held without a cluster."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncSession

from api.access import Caller
from api.cluster.records import moment
from api.context import Context
from api.fleet.fields import IdempotencyKey, ListInput, Moment, PoolId, ReservationId, TenantInput, page_body
from api.fleet.methods import add_method
from database import reservations
from database.pools import find_pool
from database.refusals import Detail, invalid
from database.tables import Reservation
from domain.permissions import ITEMS, Permission, of_pool

router = APIRouter()

_Count = Annotated[int, Field(ge=1, le=1_000_000)]


class CreateReservation(TenantInput):
    """reservations.create; `gpu` counts GPUs, `host` whole machines."""

    poolId: PoolId  # noqa: N815
    resources: dict[Literal["gpu", "host"], _Count] = Field(min_length=1)
    expiresAt: Moment | None = None  # noqa: N815
    idempotencyKey: IdempotencyKey | None = None  # noqa: N815


class GetReservation(TenantInput):
    """reservations.get and release."""

    reservationId: ReservationId  # noqa: N815


class ListReservations(ListInput):
    """reservations.list."""

    poolId: PoolId | None = None  # noqa: N815
    state: Literal["active", "ended"] | None = None


async def _records(session: AsyncSession, found: Sequence[Reservation]) -> list[dict[str, object]]:
    ids = [one.id for one in found]
    held = await reservations.held_by(session, ids)
    nodes = await reservations.nodes_of(session, ids)
    return [
        {
            "id": one.id,
            "poolId": one.pool_id,
            "state": one.state,
            "resources": one.resources,
            "bookings": [
                {"nodeId": atom.machine_id, "resource": atom.resource, "number": atom.number}
                for atom in held[one.id]
            ],
            # The cluster node that holds it; null for one that a caller made.
            "clusterNodeId": str(nodes[one.id]) if one.id in nodes else None,
            "createdBy": one.created_by,
            "createdAt": moment(one.created_at),
            "expiresAt": moment(one.expires_at),
            "endedAt": moment(one.ended_at),
            "endedBy": one.ended_by,
        }
        for one in found
    ]


async def _shown(session: AsyncSession, reservation: Reservation) -> dict[str, object]:
    return {"reservation": (await _records(session, [reservation]))[0]}


async def create_reservation(
    context: Context, session: AsyncSession, caller: Caller, body: CreateReservation
) -> dict[str, object]:
    """Books GPUs or whole machines of a pool; a retry by key answers the stored reservation."""
    asked = reservations.NewReservation(dict(body.resources.items()), body.expiresAt, body.idempotencyKey)
    stored = await reservations.stored_reservation(session, caller.tenant_id, caller.name, body.poolId, asked)
    if stored is not None:
        caller.answered_before()
        return await _shown(session, stored)
    seen = await find_pool(session, caller.tenant_id, body.poolId)
    caller.authorize(of_pool(seen.pool.id))
    if body.expiresAt is not None and body.expiresAt <= datetime.now(UTC):
        raise invalid(Detail("expiresAt", "must be in the future"))
    made = await reservations.create_reservation(
        session, tenant_id=caller.tenant_id, actor=caller.name, seen=seen, asked=asked
    )
    return await _shown(session, made)


async def get_reservation(
    context: Context, session: AsyncSession, caller: Caller, body: GetReservation
) -> dict[str, object]:
    """One reservation with what it holds."""
    found = await reservations.find_reservation(session, caller.tenant_id, body.reservationId)
    caller.authorize(of_pool(found.pool_id))
    return await _shown(session, found)


async def list_reservations(
    context: Context, session: AsyncSession, caller: Caller, body: ListReservations
) -> dict[str, object]:
    """The tenant's reservations, also ended ones and those of its cluster nodes."""
    caller.authorize(ITEMS)
    page = await reservations.list_reservations(
        session,
        caller.tenant_id,
        body.page(),
        pool_id=body.poolId,
        state=body.state,
        only_pool=caller.pool_scope,
    )
    return page_body(page, await _records(session, page.rows))


async def release_reservation(
    context: Context, session: AsyncSession, caller: Caller, body: GetReservation
) -> dict[str, object]:
    """Gives back what a reservation holds; asked again it answers the same."""
    found = await reservations.find_reservation(session, caller.tenant_id, body.reservationId)
    caller.authorize(of_pool(found.pool_id))
    return await _shown(session, await reservations.end_reservation(session, found, actor=caller.name))


_P = Permission
add_method(router, "reservations", "create", _P.RESERVATIONS_CREATE, CreateReservation, create_reservation)
add_method(router, "reservations", "release", _P.RESERVATIONS_CREATE, GetReservation, release_reservation)
add_method(router, "reservations", "get", _P.RESERVATIONS_READ, GetReservation, get_reservation)
add_method(router, "reservations", "list", _P.RESERVATIONS_READ, ListReservations, list_reservations)
