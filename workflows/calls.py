"""One way to call an activity: its typed signature, one row of the options table, a line for people."""

import asyncio
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
