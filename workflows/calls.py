"""One way to call an activity: its typed signature, one row of the options table, a line for people."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.workflow import ActivityConfig

S = TypeVar("S")
P = TypeVar("P")
R = TypeVar("R")


async def call(
    signature: Callable[[S, P], Coroutine[Any, Any, R]], message: P, options: ActivityConfig, summary: str
) -> R:
    """Runs the activity; `summary` is what the Web UI shows beside it."""
    config = ActivityConfig(**options)
    config["summary"] = summary
    return await workflow.execute_activity_method(signature, message, **config)
