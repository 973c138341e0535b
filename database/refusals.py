"""Refusals: what a request may not do, in the API's codes. Raised in a transaction, they roll it back."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class RefusalCode(StrEnum):
    """The codes of the fleet API; each surface has its own HTTP status for them."""

    INVALID_INPUT = "INVALID_INPUT"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    FORBIDDEN = "FORBIDDEN"
    NOT_FOUND = "NOT_FOUND"
    CONFLICT = "CONFLICT"
    INVALID_STATE = "INVALID_STATE"
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"
    NO_CAPACITY = "NO_CAPACITY"
    # Not of the contract's list: the transport's own.
    TOO_LARGE = "TOO_LARGE"
    UNAVAILABLE = "UNAVAILABLE"
    INTERNAL = "INTERNAL"


@dataclass(frozen=True, slots=True)
class Detail:
    """One problem of an input and its place, such as `nodeArrays[0].poolId`."""

    path: str
    message: str


class Refusal(Exception):  # noqa: N818  # it is an answer, not a fault
    """A request that is not carried out. `operation_id` is the first one of a repeated request id."""

    def __init__(
        self,
        code: RefusalCode,
        message: str,
        *,
        details: Sequence[Detail] = (),
        operation_id: uuid.UUID | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = list(details)
        self.operation_id = operation_id
        self.status = status


def not_found(message: str, path: str = "") -> Refusal:
    """NOT_FOUND, also for what the tenant may not see."""
    return Refusal(RefusalCode.NOT_FOUND, message, details=[Detail(path, message)] if path else ())


def invalid(*details: Detail) -> Refusal:
    """INVALID_INPUT with all problems at once."""
    return Refusal(
        RefusalCode.INVALID_INPUT, "; ".join(f"{d.path}: {d.message}" for d in details), details=details
    )


def conflict(message: str) -> Refusal:
    """CONFLICT with what is there already."""
    return Refusal(RefusalCode.CONFLICT, message)


def invalid_state(message: str) -> Refusal:
    """INVALID_STATE: the object's state does not allow it now."""
    return Refusal(RefusalCode.INVALID_STATE, message)
