"""The card of an operation that has ended without success in all its runs: one reason for all of it."""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from database.tables import Operation, Run
from domain.failures import FailureCard, FailureClass, failure_card
from domain.states import RunState
from domain.workflow_ids import operation_workflow_id


async def card_of(
    session: AsyncSession, operation: Operation, state: RunState, counts: Mapping[RunState, int]
) -> dict[str, Any] | None:
    """Why the operation did not succeed: what was cut short when it was canceled, else its first failure.

    Where no run failed, what ended runs otherwise is the reason; there is none only when all succeeded.
    """
    if state is not RunState.CANCELED:
        failed = await _first_card(session, operation.id, RunState.FAILED)
        if failed is not None:
            return failed
    if counts.get(RunState.CANCELED):
        card = await _cancelled(session, operation, counts)
        return card.model_dump(mode="json")
    return await _first_card(session, operation.id, RunState.SUPERSEDED)


async def _first_card(
    session: AsyncSession, operation_id: uuid.UUID, state: RunState
) -> dict[str, Any] | None:
    card: dict[str, Any] | None = await session.scalar(
        select(Run.card)
        .where(Run.operation_id == operation_id, Run.card.is_not(None), Run.state == state)
        .order_by(Run.position)
        .limit(1)
    )
    return card


async def _cancelled(
    session: AsyncSession, operation: Operation, counts: Mapping[RunState, int]
) -> FailureCard:
    """Says by whom, and how many of its runs were cut short; the card of the operation, not of a run."""
    mine = (Run.operation_id == operation.id, Run.state == RunState.CANCELED)
    named = await session.scalars(
        select(Run.canceled_by)
        .where(*mine, Run.canceled_by.is_not(None))
        .distinct()
        .order_by(Run.canceled_by)
    )
    # Runs that were cancelled by name carry their own; one cancelled in the workflow engine has nobody's.
    people = [operation.canceled_by] if operation.canceled_by else list(named)
    by = f" by {', '.join(str(one) for one in people)}" if people else ""
    short, total = counts[RunState.CANCELED], sum(counts.values())
    runs = (
        "its only run was" if total == 1 else f"{short} of its {total} runs {'was' if short == 1 else 'were'}"
    )
    return failure_card(
        FailureClass.CANCELLED,
        f"the {operation.action} was cancelled{by}: {runs} cut short",
        seen=datetime.now(UTC),
        workflow_id=operation_workflow_id(operation.id),
    )
