"""From an exception of Temporal's to the failure card that it carries, or that says what it was."""

from datetime import datetime

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    ChildWorkflowError,
    FailureError,
    TerminatedError,
    TimeoutError,
)

from domain.failures import FailureCard, FailureClass, failure_card


def failure(card: FailureCard) -> ApplicationError:
    """What a workflow raises for a card: its class as type, the card as details, never retried."""
    return ApplicationError(
        card.text(), card.model_dump(mode="json"), type=card.failure_class, non_retryable=True
    )


def _causes(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and len(chain) < 20:
        chain.append(current)
        current = current.__cause__
    return chain


def _carried(error: ApplicationError) -> FailureCard | None:
    for detail in error.details:
        try:
            return FailureCard.model_validate(detail)
        except ValidationError:
            continue
    return None


def card_of(error: FailureError, *, seen: datetime, workflow_id: str) -> FailureCard:
    """The card of the innermost cause; one is made where the cause was not a failure of ours."""
    chain = _causes(error)
    for cause in chain:
        if isinstance(cause, ApplicationError) and (card := _carried(cause)):
            return card.model_copy(update={"workflow_id": workflow_id})
    what = next((f"activity {e.activity_type}" for e in chain if isinstance(e, ActivityError)), "")
    what = what or next((f"workflow {e.workflow_id}" for e in chain if isinstance(e, ChildWorkflowError)), "")
    innermost = chain[-1]
    failure_class = FailureClass.INTERNAL
    if isinstance(innermost, TerminatedError):
        message = f"{what} was terminated in the workflow engine"
    elif isinstance(innermost, CancelledError):
        failure_class, message = FailureClass.CANCELLED, f"{what} was cancelled in the workflow engine"
    elif isinstance(innermost, TimeoutError):
        failure_class = FailureClass.TIMEOUT
        message = f"{what} did not answer in time ({innermost.type.name if innermost.type else 'timeout'})"
    else:
        message = f"{what} failed: {innermost}"
    return failure_card(failure_class, message, seen=seen, workflow_id=workflow_id)


def current_card(error: FailureError) -> FailureCard:
    """`card_of` for the workflow that is running now."""
    return card_of(error, seen=workflow.now(), workflow_id=workflow.info().workflow_id)


def note(failure_class: FailureClass, message: str) -> FailureCard:
    """A card about the workflow that is running now."""
    return failure_card(failure_class, message, seen=workflow.now(), workflow_id=workflow.info().workflow_id)
