"""Runs an operation of a scripted World on the time-skipping server."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.signatures import OperationEnd, OperationRef
from domain.task_queues import reaching
from tests.fixtures.temporal import time_skipping
from tests.workflows.fakes import Fakes, World
from workflows.client import CODE_ERRORS, workflow_runner
from workflows.operation import OperationWorkflow
from workflows.registry import WORKFLOWS

__all__ = ["time_skipping"]

Started = WorkflowHandle[OperationWorkflow, OperationEnd]


class Lab:
    """A worker over a World, on its own task queue."""

    def __init__(self, environment: WorkflowEnvironment) -> None:
        self.environment = environment
        self.task_queue = f"test-{uuid.uuid4()}"

    @asynccontextmanager
    async def worker(self, world: World, *, cached: int = 100) -> AsyncIterator[None]:
        """Hosts the real workflows beside the scripted activities."""
        async with (
            Worker(
                self.environment.client,
                task_queue=self.task_queue,
                workflows=WORKFLOWS,
                activities=Fakes(world).registered(),
                workflow_runner=workflow_runner(),
                workflow_failure_exception_types=CODE_ERRORS,
                max_cached_workflows=cached,
                # Scripted activities may block without giving their place back, as real ones do.
                max_concurrent_activities=1_000,
            ),
            self.reacher(world),
        ):
            yield

    def reacher(self, world: World) -> Worker:
        """What serves the queue of those that wait for machines."""
        return Worker(
            self.environment.client,
            task_queue=reaching(self.task_queue),
            activities=Fakes(world).registered(),
            max_concurrent_activities=1_000,
        )

    async def start(self, world: World) -> Started:
        """Starts the operation's workflow as the dispatcher does."""
        return await self.environment.client.start_workflow(
            OperationWorkflow.run,
            OperationRef(operation_id=world.operation_id),
            id=f"operation/{world.operation_id}",
            task_queue=self.task_queue,
        )

    async def run(self, world: World, *, cached: int = 100) -> OperationEnd:
        """Starts and waits for the end."""
        async with self.worker(world, cached=cached):
            handle = await self.start(world)
            return await handle.result()


@pytest.fixture
def lab(time_skipping: WorkflowEnvironment) -> Lab:
    """A lab of the test's own."""
    return Lab(time_skipping)


Run = Callable[[World], Awaitable[OperationEnd]]
