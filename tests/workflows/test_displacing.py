"""The activity that makes way for a terminate, on a real server, try after try."""

import asyncio
import dataclasses
import uuid
from typing import Any

import pytest
from temporalio.client import CancelWorkflowInput, Client, Interceptor, OutboundInterceptor
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from activities.records import Records
from activities.signatures import DisplaceRequest
from database.unit_of_work import Database
from domain.states import RunState
from tests.workflows.conftest import Lab
from tests.workflows.fakes import World


class LosesFirstCancel(Interceptor):
    """A way to the server on which the first request for a cancel is lost, and others are counted."""

    def __init__(self) -> None:
        self.asked = 0

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        """The client's calls go through here."""
        losing = self

        class Outbound(OutboundInterceptor):
            async def cancel_workflow(self, input: CancelWorkflowInput) -> None:
                losing.asked += 1
                if losing.asked == 1:
                    raise RPCError("the server is away", RPCStatusCode.UNAVAILABLE, b"")
                await super().cancel_workflow(input)

        return Outbound(next)


class Tries:
    """The tries of one displacement; what one says with its heartbeat the next is told."""

    def __init__(self, client: Client, workflow_id: str, *, cancel: bool) -> None:
        unused = Database("postgresql+asyncpg://nobody@127.0.0.1:1/none")
        self._records = Records(unused, client, reach_tries=1)
        self._request = DisplaceRequest(workflow_id=workflow_id, operation_id=uuid.uuid4(), cancel=cancel)
        self._said: tuple[Any, ...] = ()

    async def once(self) -> None:
        """One try; raises what it raises."""
        environment = ActivityEnvironment()
        environment.info = dataclasses.replace(
            ActivityEnvironment.default_info(), heartbeat_details=self._said
        )
        environment.on_heartbeat = self._beat
        await environment.run(self._records.displace, self._request)

    def _beat(self, *details: Any) -> None:
        self._said = details


def through(client: Client, interceptor: Interceptor) -> Client:
    """The same client, by another way."""
    return Client(**client.config() | {"interceptors": [interceptor]})


async def test_a_try_waits_for_nothing_and_is_meant_to_be_tried_again(lab: Lab) -> None:
    world = World(block={"finish gpu-1": asyncio.Event()})
    async with lab.worker(world):
        handle = await lab.start(world)
        await world.reached("finish gpu-1")
        tries = Tries(lab.environment.client, f"node/{world.subjects['gpu-1']}", cancel=False)
        with pytest.raises(ApplicationError) as still:
            await asyncio.wait_for(tries.once(), 10)
        assert (still.value.type, still.value.non_retryable) == ("still-running", False)
        assert still.value.category is ApplicationErrorCategory.BENIGN
        world.block["finish gpu-1"].set()
        assert (await handle.result()).state is RunState.SUCCEEDED
        await tries.once()
    assert world.ends["gpu-1"] is RunState.SUCCEEDED


async def test_nobody_to_displace_is_no_failure(lab: Lab) -> None:
    await Tries(lab.environment.client, f"node/{uuid.uuid4()}", cancel=True).once()


async def test_a_cancel_that_the_server_did_not_take_is_asked_for_again(lab: Lab) -> None:
    world = World(block={"step gpu-1 0.1": asyncio.Event(), "confirm gpu-1": asyncio.Event()})
    losing = LosesFirstCancel()
    async with lab.worker(world):
        handle = await lab.start(world)
        await world.reached("step gpu-1 0.1")
        client = through(lab.environment.client, losing)
        tries = Tries(client, f"node/{world.subjects['gpu-1']}", cancel=True)
        with pytest.raises(RPCError):
            await tries.once()
        for _ in range(2):
            with pytest.raises(ApplicationError, match="has not ended yet"):
                await tries.once()
        world.block["confirm gpu-1"].set()
        assert (await handle.result()).state is RunState.CANCELED
        await tries.once()
    assert losing.asked == 2


async def test_later_tries_leave_alone_who_takes_the_id_next(lab: Lab) -> None:
    first, second = (
        World(block={"step gpu-1 0.1": asyncio.Event()}),
        World(block={"step gpu-1 0.1": asyncio.Event()}),
    )
    second.subjects = first.subjects
    other = Lab(lab.environment)
    async with lab.worker(first), other.worker(second):
        creating = await lab.start(first)
        await first.reached("step gpu-1 0.1")
        tries = Tries(lab.environment.client, f"node/{first.subjects['gpu-1']}", cancel=True)
        with pytest.raises(ApplicationError):
            await tries.once()
        assert (await creating.result()).state is RunState.CANCELED
        retrying = await other.start(second)
        await second.reached("step gpu-1 0.1")
        await tries.once()
        second.block["step gpu-1 0.1"].set()
        assert (await retrying.result()).state is RunState.SUCCEEDED
