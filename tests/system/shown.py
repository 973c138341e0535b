"""A failure as each place shows it, and what must hold of it wherever it is shown."""

import asyncio
import re
from dataclasses import dataclass, field
from typing import Any

from temporalio.client import WorkflowFailureError

from tests.fixtures.dev_stack import DevStack, eventually
from workflows.client import connect


@dataclass(frozen=True)
class Shown:
    """One failure as each place shows it."""

    card: dict[str, Any]
    messages: dict[str, str]
    cli: str
    ended: BaseException | None
    status: str
    steps: list[dict[str, Any]] = field(default_factory=list)


async def _end_of(address: str, workflow_id: str) -> BaseException | None:
    client = await connect(address, "default")
    try:
        await client.get_workflow_handle(workflow_id).result()
    except WorkflowFailureError as error:
        return error.cause
    return None


def end_of(stack: DevStack, workflow_id: str) -> BaseException | None:
    """What a workflow failed with, as Temporal tells it to anybody."""
    return asyncio.run(_end_of(stack.ready["temporal"], workflow_id))


def fleet_operation(stack: DevStack, operation_id: str) -> dict[str, Any]:
    operation: dict[str, Any] = stack.fleet("operations/get", operationId=operation_id)["operation"]
    return operation


def ended(stack: DevStack, operation_id: str) -> dict[str, Any]:
    """The operation as the fleet API shows it, once it has ended."""

    def ask() -> dict[str, Any] | None:
        operation = fleet_operation(stack, operation_id)
        return operation if operation["endTime"] else None

    return eventually(f"operation {operation_id} has ended", ask, 120)


def assert_told_the_same_everywhere(failure: Shown, failure_class: str, says: str) -> str:
    """Returns the text."""
    card = failure.card
    assert card["failure_class"] == failure_class
    for name in ("message", "action", "first_seen", "workflow_id"):
        assert card[name], f"{name} of a card is never empty"
    (text,) = set(failure.messages.values())
    assert says in text
    assert text.startswith(f"{failure_class}: ")
    assert text.endswith(card["action"])
    assert not re.search(r"\b(unknown|None|null|Traceback)\b", text)
    assert text in failure.cli
    return text
