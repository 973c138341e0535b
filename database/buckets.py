"""Buckets: one array's nodes of one machine type; their ids, and when one last ran short."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from database.events import record_event
from database.tables import Event
from domain.ids import derived_id

_SHORTAGE = "bucket.capacity-failure"


def bucket_id(array_id: str, machine_type: str) -> str:
    """The same for one array and machine type for ever."""
    return derived_id("bucket", array_id, machine_type)


def record_shortage(
    session: AsyncSession, tenant_id: str, actor: str, array_id: str, machine_type: str, message: str
) -> None:
    """Notes that a bucket had fewer machines than were asked for."""
    record_event(
        session,
        tenant_id=tenant_id,
        type=_SHORTAGE,
        subject=f"bucket/{bucket_id(array_id, machine_type)}",
        actor=actor,
        message=message,
    )


async def last_shortages(session: AsyncSession, bucket_ids: Sequence[str]) -> dict[str, datetime]:
    """When each bucket last ran short; one that never did is absent."""
    rows = await session.execute(
        select(Event.subject, func.max(Event.at))
        .where(Event.subject.in_([f"bucket/{bucket}" for bucket in bucket_ids]), Event.type == _SHORTAGE)
        .group_by(Event.subject)
    )
    return {subject.removeprefix("bucket/"): at for subject, at in rows}
