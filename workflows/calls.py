"""One way to call an activity: its typed signature, one row of the options table, a line for people."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception
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


def cancelled_by(error: BaseException) -> bool:
    """Whether an error ends this workflow as cancelled.

    Also one of an activity that failed by itself: a cancel that arrived meanwhile was handed to the activity,
    and is not raised anywhere again.
    """
    return is_cancelled_exception(error) or workflow.cancellation_reason() is not None


def refuse_cancelled() -> None:
    """Raises CancelledError when this workflow is cancelled, for where the next wait begins.

    An activity that ends well before it has heard of a cancel takes the cancel with it.
    """
    if workflow.cancellation_reason() is not None:
        raise asyncio.CancelledError


async def uncut(work: Coroutine[Any, Any, R]) -> R:
    """Awaits to its end what must happen although this workflow is cancelled, or is about to be.

    A bare `asyncio.shield` protects the work and not the waiting: the workflow would end, and its work, too.
    """
    task = asyncio.create_task(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            # Ours, not the work's: that is seen below.
            continue
    return task.result()
