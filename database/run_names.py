"""Names that a request gives for runs of an operation: it is refused when one of them is not there."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from database.refusals import Detail, invalid
from database.tables import Operation, Run

# What one refusal says at most: problems, and names that would have been right.
_MOST_PROBLEMS = 100
_MOST_NAMES = 10


async def check_names(session: AsyncSession, operation: Operation, names: Sequence[str] | None) -> None:
    """Refusal INVALID_INPUT with each name that no run of the operation has, and those that there are."""
    if names is None:
        return
    known = list(
        await session.scalars(select(Run.name).where(Run.operation_id == operation.id).order_by(Run.position))
    )
    there = set(known)
    unknown = [(place, name) for place, name in enumerate(names) if name not in there]
    if unknown:
        accepted = _accepted(known)
        raise invalid(
            *(
                Detail(f"names[{place}]", f"the operation has no run of {name!r}; {accepted}")
                for place, name in unknown[:_MOST_PROBLEMS]
            )
        )


def _accepted(known: Sequence[str]) -> str:
    if not known:
        return "it has no runs"
    more = f" and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
    return f"there are: {', '.join(known[:_MOST_NAMES])}{more}"
