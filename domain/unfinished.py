"""Why a run did not reach its target: what a retry chooses by, and what lists count apart."""

from enum import StrEnum

from domain.failures import FailureClass
from domain.states import RunState


class Unfinished(StrEnum):
    """Kinds of runs that ended without success."""

    FAILED = "failed"
    CANCELED = "canceled"
    # The machine could not be reached, or was lost: nothing says that the work itself is wrong.
    UNREACHABLE = "unreachable"
    # Ended before it had its machine.
    NOT_STARTED = "not_started"


UNREACHABLE_CLASSES = frozenset({FailureClass.CONNECT, FailureClass.LOST_MACHINE})


def unfinished(state: RunState, failure_class: FailureClass | None, *, claimed: bool) -> Unfinished | None:
    """The kind of an ended run; None for one that succeeded, was superseded, or has not ended."""
    if state not in (RunState.FAILED, RunState.CANCELED):
        return None
    if not claimed:
        return Unfinished.NOT_STARTED
    if state is RunState.CANCELED:
        return Unfinished.CANCELED
    return Unfinished.UNREACHABLE if failure_class in UNREACHABLE_CLASSES else Unfinished.FAILED
