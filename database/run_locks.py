"""Whether a run may still write: it has not ended, and its node has not moved on. Generations decide."""

import uuid

from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncSession

from database.tables import Node, Operation, Run
from domain.states import ENDING_RUN_STATES, FINAL_RUN_STATES, RunState


class SupersededError(Exception):
    """The run is no longer wanted: it has ended, or the node has moved on to a newer generation."""


class RunCanceledError(Exception):
    """Somebody asked for the run's end; nothing new may be begun for it."""


def refuse_ending(run: Run) -> None:
    """Raises RunCanceledError when the run's end has been asked for, or has come by that."""
    if RunState(run.state) in ENDING_RUN_STATES or run.state == RunState.CANCELED:
        by = f" by {run.canceled_by}" if run.canceled_by else ""
        raise RunCanceledError(f"{run.action} of {run.name} was cancelled{by}")


async def share_live_run(session: AsyncSession, run: Run) -> None:
    """Reads the run anew and keeps it from ending until the transaction does, for what is begun in it.

    Raises RunCanceledError when its end has been asked for, SupersededError when it has come.
    """
    await session.refresh(run, with_for_update={"read": True})
    refuse_ending(run)
    if RunState(run.state) in FINAL_RUN_STATES:
        raise SupersededError(f"this run of {run.name} has already ended: {run.state}")


async def lock_live_run(session: AsyncSession, run_id: uuid.UUID) -> tuple[Run, Node | None]:
    """The run and its node, locked (node first), when the run may still write.

    Raises RunCanceledError when it ended by being cancelled, else SupersededError when it may not.
    """
    run = (await session.execute(select(Run).where(Run.id == run_id))).scalar_one()
    node = None
    if run.node_id is not None:
        node = (
            await session.execute(select(Node).where(Node.id == run.node_id).with_for_update())
        ).scalar_one()
    await session.refresh(run, with_for_update=True)
    if run.state == RunState.CANCELED:
        refuse_ending(run)
    if RunState(run.state) in FINAL_RUN_STATES:
        raise SupersededError(f"this run of {run.name} has already ended: {run.state}")
    if node is not None and node.generation != run.generation:
        raise SupersededError(await _moved_on(session, run, node.generation))
    return run, node


async def lock_runs(session: AsyncSession, which: ColumnElement[bool]) -> list[tuple[Run, Node | None]]:
    """The runs that `which` chooses, in their order, with their nodes; nodes are locked first, by id."""
    fresh = {"populate_existing": True}
    nodes = await session.scalars(
        select(Node)
        .join(Run, Run.node_id == Node.id)
        .where(which)
        .order_by(Node.id)
        .with_for_update(of=Node)
        .execution_options(**fresh)
    )
    by_id = {node.id: node for node in nodes}
    runs = await session.scalars(
        select(Run).where(which).order_by(Run.position).with_for_update().execution_options(**fresh)
    )
    return [(run, by_id.get(run.node_id) if run.node_id else None) for run in runs]


async def refuse_superseded(session: AsyncSession, run: Run) -> None:
    """Raises SupersededError when the run's node has moved on; takes no lock."""
    if run.node_id is None:
        return
    generation = await session.scalar(select(Node.generation).where(Node.id == run.node_id))
    if generation != run.generation:
        raise SupersededError(await _moved_on(session, run, generation))


async def _moved_on(session: AsyncSession, run: Run, generation: int | None) -> str:
    """Says what has overtaken a run, and who asked for that."""
    newer = (
        await session.execute(
            select(Run.action, Run.operation_id, Operation.created_by)
            .join(Operation, Operation.id == Run.operation_id)
            .where(Run.node_id == run.node_id, Run.generation == generation)
            .order_by(Run.created_at.desc())
            .limit(1)
        )
    ).one_or_none()
    by = f": {newer.action} by {newer.created_by}, operation {newer.operation_id}" if newer else ""
    return f"node {run.name} has moved on{by}"
