"""Situations that several tests begin with, made with the application's own functions."""

import uuid
from typing import Any

from sqlalchemy import select

from database.clusters import find_cluster
from database.nodes import Selection
from database.operations import NewRun, submit_operation
from database.runs import claim_machine
from database.set_requests import SetRequest
from database.tables import Node, Run
from database.termination import terminate_nodes
from tests.database.world import World


async def created(world: World, **machine: Any) -> tuple[Run, Node]:
    """One node that was just created on one new machine with eight GPUs, and its run."""
    await world.machines(1, **machine)
    made = await world.create([SetRequest("gpu", 1)])
    run = await run_of(world, made.operation_id)
    return run, await world.one(select(Node).where(Node.id == run.node_id))


async def terminating(world: World, node: Node) -> uuid.UUID:
    """Asks for the node's end; returns the run that must bring it about."""
    async with world.database.begin() as session:
        asked = await terminate_nodes(
            session,
            tenant_id=world.tenant,
            actor="tester",
            cluster=await find_cluster(session, world.tenant, world.cluster),
            wanted=Selection(ids=[str(node.id)]),
        )
    return (await run_of(world, asked.operation_id)).id


async def submit(world: World, run: NewRun, *, action: str = "clean") -> uuid.UUID:
    """An operation with this one run; returns the run's id."""
    operation_id = uuid.uuid4()
    async with world.database.begin() as session:
        await submit_operation(
            session,
            operation_id=operation_id,
            tenant_id=world.tenant,
            action=action,
            actor="tester",
            runs=[run],
        )
    return (await run_of(world, operation_id)).id


async def run_of(world: World, operation_id: uuid.UUID) -> Run:
    """The only run of an operation."""
    return await world.one(select(Run).where(Run.operation_id == operation_id))


async def claimed(world: World, run_id: uuid.UUID) -> int | None:
    """Claims the run's machine; returns the token it is held under."""
    async with world.database.begin() as session:
        run, _ = await claim_machine(session, run_id)
        return run.claim_token
