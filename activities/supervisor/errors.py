"""Refusals and failures of the supervisor on the machine, not of a step and not of the connection."""

from __future__ import annotations

from typing import Literal

SupervisorFailureClass = Literal[
    "superseded", "no-space", "privilege", "lost-machine", "validation", "health", "internal"
]


class SupervisorError(Exception):
    """The supervisor could not do what was asked. `failure_class` is the word for the failure card."""

    def __init__(self, message: str, failure_class: SupervisorFailureClass = "internal") -> None:
        super().__init__(message)
        self.failure_class: SupervisorFailureClass = failure_class


class TokenRefused(SupervisorError):  # noqa: N818 - a refusal, named as one
    """The machine has seen a higher claim token: it was given to another run, and this one must let go."""

    def __init__(self, endpoint: str, token: int, highest: int) -> None:
        super().__init__(
            f"{endpoint}: claim token {token} is refused, the machine has seen {highest}",
            failure_class="superseded",
        )
        self.token = token
        self.highest = highest


class Unproven(SupervisorError):  # noqa: N818
    """Steps that began before may still run; nothing is started beside them. Trying again is right."""

    def __init__(self, message: str) -> None:
        super().__init__(message, failure_class="lost-machine")


def classify(text: str) -> SupervisorFailureClass:
    """The class of a message that a system call's failure left (in the C locale)."""
    if "No space left" in text or "Disk quota exceeded" in text:
        return "no-space"
    if any(mark in text for mark in ("Permission denied", "Read-only file system", "not permitted", "sudo")):
        return "privilege"
    return "internal"
