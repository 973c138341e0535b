"""Custody: a node's end gives back its quota, bookings, reservation and name, and passes its machine on."""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import select

from database.custody import hand_over_node
from database.run_ends import end_run
from database.set_requests import SetRequest
from database.tables import Booking, Event, Machine, Node, Operation, QuotaRow, Reservation, Run
from domain.failures import FailureCard, FailureClass, failure_card
from domain.states import MachineState, NodeStatus, RunState
from tests.database.scenes import created, run_of, terminating
from tests.database.world import World

# What is said by a card in these tests.
PROBLEM = "could not wipe"


def card() -> FailureCard:
    return failure_card(FailureClass.EXIT, PROBLEM, seen=datetime.now(UTC))


def reachable_from_outside() -> dict[str, Any]:
    """A machine's values when its power can be switched and it can be reimaged."""
    return {"bmc_address": f"sandbox://{uuid.uuid4().hex}"}


async def hand_over(world: World, run_id: uuid.UUID, problem: FailureCard | None = None) -> RunState:
    async with world.database.begin() as session:
        return await hand_over_node(session, run_id, problem)


async def gpus_in_use(world: World) -> int:
    row = await world.one(
        select(QuotaRow).where(
            QuotaRow.pool_id == world.pool_id, QuotaRow.tenant_id == world.tenant, QuotaRow.resource == "gpu"
        )
    )
    return row.in_use


async def live_bookings(world: World, machine_id: str | None) -> int:
    return await world.count(Booking, Booking.machine_id == machine_id, Booking.released_at.is_(None))


async def machine_of(world: World, node: Node) -> Machine:
    """The machine that a node had when it was read."""
    return await world.one(select(Machine).where(Machine.id == node.machine_id))


async def clean_operations(world: World, node: Node) -> Sequence[Operation]:
    async with world.database.begin() as session:
        rows = await session.scalars(
            select(Operation).where(Operation.machine_id == node.machine_id, Operation.action == "clean")
        )
        return rows.all()


async def test_quota_bookings_and_reservation_are_given_back(world: World) -> None:
    _, node = await created(world, **reachable_from_outside())
    assert (await gpus_in_use(world), await live_bookings(world, node.machine_id)) == (8, 9)
    assert await hand_over(world, await terminating(world, node)) is RunState.SUCCEEDED
    assert (await gpus_in_use(world), await live_bookings(world, node.machine_id)) == (0, 0)
    assert await world.count(Booking, Booking.machine_id == node.machine_id) == 9
    reservation = await world.one(select(Reservation).where(Reservation.id == node.reservation_id))
    assert reservation.state == "ended"
    assert reservation.ended_at is not None


async def test_what_other_nodes_hold_stays_theirs(world: World) -> None:
    _, kept = await created(world)
    _, node = await created(world, **reachable_from_outside())
    assert await gpus_in_use(world) == 16
    await hand_over(world, await terminating(world, node))
    assert (await gpus_in_use(world), await live_bookings(world, kept.machine_id)) == (8, 9)
    reservation = await world.one(select(Reservation).where(Reservation.id == kept.reservation_id))
    assert reservation.state == "active"


async def test_a_node_is_removed_and_its_name_goes_to_the_next_one(world: World) -> None:
    _, node = await created(world, **reachable_from_outside())
    await hand_over(world, await terminating(world, node))
    gone = await world.one(select(Node).where(Node.id == node.id))
    assert gone.status == NodeStatus.TERMINATED
    assert gone.removed_at is not None
    assert (gone.machine_id, gone.instance_id, gone.reservation_id) == (None, None, None)
    _, again = await created(world)
    assert again.name == node.name
    assert again.id != node.id


async def test_a_fixed_node_ends_but_keeps_its_name(world: World) -> None:
    _, node = await created(world, **reachable_from_outside())
    await world.set(Node, Node.id == node.id, fixed=True)
    await hand_over(world, await terminating(world, node))
    kept = await world.one(select(Node).where(Node.id == node.id))
    assert (kept.status, kept.removed_at) == (NodeStatus.TERMINATED, None)
    _, another = await created(world)
    assert another.name != node.name


@pytest.mark.parametrize("problem", [None, card()], ids=["after a clean end", "after a failed clean-up"])
async def test_a_machine_that_can_be_wiped_from_outside_is_cleaned(
    world: World, problem: FailureCard | None
) -> None:
    _, node = await created(world, **reachable_from_outside())
    run_id = await terminating(world, node)
    await hand_over(world, run_id, problem)
    machine = await machine_of(world, node)
    assert machine.state == MachineState.CLEANING
    assert machine.state_deadline is not None
    (operation,) = await clean_operations(world, node)
    assert (operation.state, operation.created_by) == (RunState.PENDING, f"run/{run_id}")
    run = await run_of(world, operation.id)
    assert (run.kind, run.machine_id, run.node_id) == ("machine", node.machine_id, None)


async def test_a_machine_that_nothing_can_wipe_is_held_back_when_its_clean_up_failed(world: World) -> None:
    _, node = await created(world)
    problem = card()
    await hand_over(world, await terminating(world, node), problem)
    machine = await machine_of(world, node)
    assert (machine.state, machine.message) == (MachineState.FAILED, problem.text())
    assert PROBLEM in machine.message
    assert await clean_operations(world, node) == []
    assert (await world.create([SetRequest("gpu", 1)])).sets[0].added == 0


async def test_a_machine_that_nothing_can_wipe_is_cleaned_when_nothing_went_wrong(world: World) -> None:
    _, node = await created(world)
    await hand_over(world, await terminating(world, node))
    machine = await machine_of(world, node)
    assert machine.state == MachineState.CLEANING
    assert PROBLEM not in machine.message
    assert len(await clean_operations(world, node)) == 1


async def test_a_machine_in_cleaning_is_not_booked(world: World) -> None:
    _, node = await created(world, **reachable_from_outside())
    await hand_over(world, await terminating(world, node))
    assert (await world.create([SetRequest("gpu", 1)])).sets[0].added == 0


async def test_a_machine_that_is_no_longer_ready_stays_as_it_is(world: World) -> None:
    _, node = await created(world, **reachable_from_outside())
    await world.set(Machine, Machine.id == node.machine_id, state=MachineState.MAINTENANCE)
    await hand_over(world, await terminating(world, node))
    assert (await machine_of(world, node)).state == MachineState.MAINTENANCE
    assert await clean_operations(world, node) == []
    assert await gpus_in_use(world) == 0


async def test_a_repeated_hand_over_changes_nothing(world: World) -> None:
    _, node = await created(world, **reachable_from_outside())
    run_id = await terminating(world, node)
    await hand_over(world, run_id)
    # The machine and the name are in other hands by the time of the repeat.
    await world.set(Machine, Machine.id == node.machine_id, state=MachineState.READY)
    _, successor = await created(world)
    before = await snapshot(world, node, run_id)
    assert await hand_over(world, run_id, card()) is RunState.SUCCEEDED
    assert await snapshot(world, node, run_id) == before
    assert await gpus_in_use(world) == 8
    assert await live_bookings(world, successor.machine_id) == 9


async def snapshot(world: World, node: Node, run_id: uuid.UUID) -> dict[str, Any]:
    """All that a hand-over writes, as it is now."""
    run = await world.one(select(Run).where(Run.id == run_id))
    gone = await world.one(select(Node).where(Node.id == node.id))
    machine = await machine_of(world, node)
    reservation = await world.one(select(Reservation).where(Reservation.id == node.reservation_id))
    return {
        "run": (run.state, run.card, run.ended_at),
        "node": (gone.status, gone.message, gone.removed_at, gone.updated_at),
        "machine": (machine.state, machine.message, machine.version),
        "reservation": (reservation.state, reservation.ended_at),
        "in use": await gpus_in_use(world),
        "operations": await world.count(Operation, Operation.tenant_id == world.tenant),
        "events": await world.count(Event, Event.tenant_id == world.tenant),
    }


async def test_a_run_whose_node_moved_on_gives_nothing_back(world: World) -> None:
    _, node = await created(world, **reachable_from_outside())
    run_id = await terminating(world, node)
    await world.set(Node, Node.id == node.id, generation=3)
    assert await hand_over(world, run_id) is RunState.SUPERSEDED
    assert (await world.one(select(Run).where(Run.id == run_id))).state == RunState.SUPERSEDED
    assert (await gpus_in_use(world), await live_bookings(world, node.machine_id)) == (8, 9)
    kept = await world.one(select(Node).where(Node.id == node.id))
    assert (kept.status, kept.machine_id) == (NodeStatus.TERMINATING, node.machine_id)
    assert (await machine_of(world, node)).state == MachineState.READY


async def test_a_terminate_run_that_fails_gives_everything_back_all_the_same(world: World) -> None:
    _, node = await created(world)
    run_id = await terminating(world, node)
    async with world.database.begin() as session:
        assert await end_run(session, run_id, RunState.FAILED, card()) is RunState.SUCCEEDED
    assert (await gpus_in_use(world), await live_bookings(world, node.machine_id)) == (0, 0)
    assert (await machine_of(world, node)).state == MachineState.FAILED
