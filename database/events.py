"""Events: what happened to what, by whom. Written in the transaction of the change they speak of."""

from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from database.tables import Event


def record_event(
    session: AsyncSession, *, tenant_id: str, type: str, subject: str, actor: str, **data: Any
) -> None:
    """Adds an event such as `node.ready` about `node/<id>`; flushed with the transaction."""
    session.add(Event(tenant_id=tenant_id, type=type, subject=subject, actor=actor, data=data))
