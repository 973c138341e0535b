"""What was read of a machine's GPUs: stored, compared with its type, and what follows for booking."""

from typing import Any

from sqlalchemy import select

from database.hardware import promised_gpus, store_hardware
from database.machines import assign_pool
from database.pools import own_pool
from database.set_requests import SetRequest
from database.tables import Machine
from tests.database.world import World


def facts(gpus: int) -> dict[str, Any]:
    """As the probe gives them, as far as they count here."""
    return {"driver": {"version": "550.54.15"}, "gpus": [{"index": index} for index in range(gpus)]}


async def store(
    world: World, machine: str, gpus: int, problem: tuple[str, str] | None = None
) -> tuple[str | None, Machine]:
    """What is said of it, and the row afterwards."""
    async with world.database.begin() as session:
        said = await store_hardware(session, machine, facts(gpus), problem)
    return said, await world.one(select(Machine).where(Machine.id == machine))


async def added(world: World) -> int:
    """How many nodes a create gets."""
    done = await world.create([SetRequest("gpu", 1)])
    return done.sets[0].added


async def test_the_type_says_how_many_there_must_be(world: World) -> None:
    (gpus,), (none,) = await world.machines(1), await world.machines(1, "cpu")
    async with world.database.begin() as session:
        assert await promised_gpus(session, gpus) == 8
        assert await promised_gpus(session, none) == 0


async def test_as_many_as_promised_is_no_problem(world: World) -> None:
    (machine,) = await world.machines(1)
    said, row = await store(world, machine, 8)
    assert said is None
    assert not row.mismatched
    assert row.hardware["problem"] is None
    assert row.hardware["driver"] == {"version": "550.54.15"}
    assert len(row.hardware["gpus"]) == 8
    assert row.hardware["readAt"]
    assert await added(world) == 1


async def test_another_number_keeps_the_machine_from_being_booked_until_it_is_right(world: World) -> None:
    (machine,) = await world.machines(1)
    said, row = await store(world, machine, 7)
    assert said == "mismatch: its machine type has 8 GPUs, its driver sees 7"
    assert row.mismatched
    assert await added(world) == 0
    async with world.database.begin() as session:
        pool = await own_pool(session, world.tenant, world.pool_id)
        await assign_pool(session, tenant_id=world.tenant, actor="t", pool=pool, machine_ids=[machine])
    assert await added(world) == 0
    _, row = await store(world, machine, 8)
    assert not row.mismatched
    assert await added(world) == 1


async def test_gpus_that_could_not_be_read_are_not_taken_for_missing_ones(world: World) -> None:
    (machine,) = await world.machines(1)
    said, row = await store(world, machine, 0, ("nvml-absent", "no library"))
    assert said == "nvml-absent: no library"
    assert row.hardware["problem"] == {"class": "nvml-absent", "message": "no library"}
    assert not row.mismatched
    assert await added(world) == 1
