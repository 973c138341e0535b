"""What live runs wait for, in words: shown while it lasts, and gone with it."""

import uuid
from collections.abc import Sequence

from sqlalchemy import ScalarSelect, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from database.matching import one_of
from database.tables import Node, Run


async def note_waiting(session: AsyncSession, run_id: uuid.UUID, reason: str | None) -> None:
    """Says what a run waits for, or with None that it gets on; nothing once it has ended."""
    await session.execute(
        update(Run)
        .where(Run.id == run_id, Run.ended_at.is_(None), Run.waiting.is_distinct_from(reason))
        .values(waiting=reason)
    )


def waiting_of_node() -> ScalarSelect[str | None]:
    """What the newest run of a node waits for, as a column of a query over nodes."""
    return (
        select(Run.waiting)
        .where(Run.node_id == Node.id, Run.generation == Node.generation, Run.waiting.is_not(None))
        .limit(1)
        .scalar_subquery()
    )


async def waiting_of_machines(session: AsyncSession, machine_ids: Sequence[str]) -> dict[str, str]:
    """What the runs that are about these machines themselves wait for, by machine."""
    rows = await session.execute(
        select(Run.machine_id, Run.waiting).where(
            one_of(Run.machine_id, machine_ids), Run.waiting.is_not(None)
        )
    )
    return {machine: waiting for machine, waiting in rows if machine and waiting}
