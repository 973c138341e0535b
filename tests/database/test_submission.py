"""The create transaction: what it books, what it writes, and what it never does twice."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import select, text

from cli.dev.postgres import DatabaseUrls
from database.clusters import NewArray
from database.pools import create_pool
from database.refusals import Refusal, RefusalCode
from database.set_requests import SetRequest, merged
from database.submission import Creation
from database.tables import (
    Booking,
    Event,
    Node,
    Operation,
    Outbox,
    ProfileVersion,
    QuotaRow,
    Run,
)
from database.unit_of_work import Database
from tests.database.world import World, make_world, new_pool, statements_of


def gpu(count: int, **values: object) -> SetRequest:
    return SetRequest(node_array="gpu", count=count, **values)  # type: ignore[arg-type]


async def test_a_node_books_every_atom_of_exactly_one_machine(world: World) -> None:
    machines = await world.machines(2)
    await world.create([gpu(1)])
    assert await world.count(Booking, Booking.tenant_id == world.tenant) == 9
    assert (
        await world.fetch(
            "SELECT count(DISTINCT machine_id) FROM bookings WHERE tenant_id = :t", t=world.tenant
        )
        == 1
    )
    booked = await world.fetch("SELECT machine_id FROM nodes WHERE tenant_id = :t", t=world.tenant)
    assert booked in machines


async def test_quota_counts_a_gpu_machine_as_its_gpus_and_a_plain_one_as_nothing_for_the_owner(
    world: World,
) -> None:
    await world.machines(1)
    await world.machines(1, "cpu")
    done = await world.create([gpu(1, machine_type="gpu8"), gpu(1, machine_type="cpu")])
    assert [result.added for result in done.sets] == [1, 1]
    used = await world.fetch("SELECT in_use FROM quotas WHERE tenant_id = :t", t=world.tenant)
    assert used == 8


async def test_a_create_writes_node_run_event_outbox_and_operation_together(world: World) -> None:
    await world.machines(1)
    done = await world.create([gpu(1)])
    async with world.database.begin() as session:
        node = (await session.scalars(select(Node).where(Node.tenant_id == world.tenant))).one()
        run = (await session.scalars(select(Run).where(Run.operation_id == done.operation_id))).one()
        operation = await session.get_one(Operation, done.operation_id)
        outbox = (await session.scalars(select(Outbox).where(Outbox.operation_id == done.operation_id))).one()
    assert (node.status, node.target_state, node.generation, node.name) == (
        "Acquiring",
        "Started",
        1,
        "gpu-1",
    )
    assert node.status_deadline is not None
    assert (run.node_id, run.generation, run.state, run.kind) == (node.id, 1, "pending", "node")
    assert (operation.state, operation.run_count, outbox.desired) == ("pending", 1, "running")
    assert await world.count(Event, Event.subject == f"node/{node.id}") == 1


async def test_the_first_use_freezes_the_profile_version(world: World) -> None:
    await world.machines(1)
    assert await world.count(ProfileVersion, ProfileVersion.used_at.is_not(None)) == await world.count(
        ProfileVersion, ProfileVersion.used_at.is_not(None), ProfileVersion.profile_id != world.profile_id
    )
    await world.create([gpu(1)])
    used = await world.fetch(
        "SELECT c.content = v.content FROM profile_versions v JOIN profile_contents c USING (digest) "
        "WHERE v.profile_id = :p AND v.used_at IS NOT NULL",
        p=world.profile_id,
    )
    assert used is True


async def test_a_create_that_adds_nothing_does_not_use_the_profile_version(world: World) -> None:
    done = await world.create([gpu(1)])
    operation = await world.fetch("SELECT state FROM operations WHERE id = :o", o=done.operation_id)
    assert operation == "failed"
    assert await world.count(
        ProfileVersion, ProfileVersion.profile_id == world.profile_id, ProfileVersion.used_at.is_(None)
    )


@pytest.mark.parametrize(
    "values",
    [
        {"state": "failed"},
        {"state": "joining"},
        {"cordons": ["someone"]},
        {"quarantined": True},
        {"mismatched": True},
    ],
)
async def test_a_machine_that_is_not_fit_is_never_booked(world: World, values: dict[str, Any]) -> None:
    await world.machines(1, **values)
    done = await world.create([gpu(1)])
    assert done.sets[0].added == 0


async def test_a_machine_without_atoms_is_never_booked(world: World) -> None:
    machines = await world.machines(1)
    async with world.database.begin() as session:
        await session.execute(text("DELETE FROM atoms WHERE machine_id = :m"), {"m": machines[0]})
    assert (await world.create([gpu(1)])).sets[0].added == 0


async def test_of_twenty_racing_creates_for_the_last_machine_one_wins(world: World) -> None:
    await world.machines(1)
    clusters = [
        await world.add_cluster(f"race-{n}", NewArray("gpu", world.pool_id, world.profile)) for n in range(20)
    ]
    done = await asyncio.gather(*(world.create([gpu(1)], cluster=cluster) for cluster in clusters))
    assert sorted(result.sets[0].added for result in done) == [0] * 19 + [1]
    assert await world.count(Booking, Booking.tenant_id == world.tenant) == 9


async def test_racing_creates_in_one_cluster_get_different_names(world: World) -> None:
    await world.machines(20)
    await asyncio.gather(*(world.create([gpu(2)]) for _ in range(10)))
    names = await world.fetch("SELECT array_agg(name) FROM nodes WHERE tenant_id = :t", t=world.tenant)
    assert sorted(names) == sorted(f"gpu-{n}" for n in range(1, 21))


async def test_creates_over_two_pools_in_either_order_never_deadlock(world: World) -> None:
    async with world.database.begin() as session:
        second = await create_pool(session, tenant_id=world.tenant, actor="t", asked=new_pool(world.site_id))
    await world.machines(20)
    await world.machines(20, pool_id=second.id)
    arrays = (NewArray("a", world.pool_id, world.profile), NewArray("b", second.id, world.profile))
    clusters = [await world.add_cluster(f"cross-{n}", *arrays) for n in range(10)]
    done = await asyncio.gather(
        *(
            world.create(
                [SetRequest(name, 1) for name in (("a", "b") if n % 2 else ("b", "a"))], cluster=cluster
            )
            for n, cluster in enumerate(clusters)
        )
    )
    assert all([one.added for one in creation.sets] == [1, 1] for creation in done)


async def test_of_a_hundred_repeats_of_one_request_id_one_is_done(world: World) -> None:
    await world.machines(3)
    done = await asyncio.gather(
        *(world.create([gpu(1)], request_id="once") for _ in range(100)), return_exceptions=True
    )
    made = [one for one in done if isinstance(one, Creation)]
    refused = [one for one in done if isinstance(one, Refusal)]
    assert (len(made), len(refused)) == (1, 99)
    assert {one.operation_id for one in refused} == {made[0].operation_id}
    assert {one.code for one in refused} == {RefusalCode.CONFLICT}
    assert await world.count(Node, Node.tenant_id == world.tenant) == 1


async def test_two_tenants_may_use_the_same_request_id(world: World, database: Database) -> None:
    other = await make_world(database)
    for tenant in (world, other):
        await tenant.machines(1)
        assert (await tenant.create([gpu(1)], request_id="same")).sets[0].added == 1


async def test_a_refused_request_does_not_burn_its_id(world: World) -> None:
    await world.machines(1)
    with pytest.raises(Refusal, match="no nodearray nope"):
        await world.create([SetRequest("nope", 1)], request_id="again")
    assert (await world.create([gpu(1)], request_id="again")).sets[0].added == 1


async def test_one_bad_set_leaves_nothing_of_the_good_ones(world: World) -> None:
    await world.machines(2)
    with pytest.raises(Refusal):
        await world.create([gpu(1), SetRequest("nope", 1)])
    assert await world.count(Node, Node.tenant_id == world.tenant) == 0
    assert await world.count(Booking, Booking.tenant_id == world.tenant) == 0


async def test_the_quota_binds_and_says_so(world: World) -> None:
    await world.machines(3)
    await world.set(QuotaRow, QuotaRow.pool_id == world.pool_id, maximum=17)
    done = await world.create([gpu(3)])
    assert done.sets[0].added == 2
    assert "quota for gpu" in done.sets[0].message
    assert "17" in done.sets[0].message


async def test_a_missing_gpu_quota_row_grants_nothing(world: World) -> None:
    await world.machines(1)
    async with world.database.begin() as session:
        await session.execute(text("DELETE FROM quotas WHERE pool_id = :p"), {"p": world.pool_id})
    assert (await world.create([gpu(1)])).sets[0].added == 0


async def test_the_arrays_limits_bind_and_say_so(world: World) -> None:
    await world.machines(9)
    limited = await world.add_cluster(
        "limited",
        NewArray("gpu", world.pool_id, world.profile, max_count=2),
        NewArray("cores", world.pool_id, world.profile, max_core_count=95),
    )
    done = await world.create([gpu(3), SetRequest("cores", 3)], cluster=limited)
    assert [one.added for one in done.sets] == [2, 2]
    assert "allows 2 nodes" in done.sets[0].message
    assert "allows 95 cores" in done.sets[1].message


async def test_names_fill_gaps_and_skip_what_is_taken(world: World) -> None:
    await world.machines(6)
    await world.create([gpu(3)])
    await world.set(
        Node,
        (Node.tenant_id == world.tenant) & (Node.name == "gpu-2"),
        removed_at=text("now()"),
    )
    done = await world.create([gpu(2), gpu(1, name_format="x-%03d", name_offset=7)])
    async with world.database.begin() as session:
        names = set(
            await session.scalars(
                select(Node.name)
                .join(Run, Run.node_id == Node.id)
                .where(Run.operation_id == done.operation_id)
            )
        )
    assert names == {"gpu-2", "gpu-4", "x-007"}


async def test_a_thousand_nodes_are_put_in_with_as_many_statements_as_one(world: World) -> None:
    await world.machines(1_001)
    with statements_of(world.database) as for_one:
        await world.create([gpu(1)])
    with statements_of(world.database) as for_many:
        done = await world.create([gpu(1_000)])
    assert done.sets[0].added == 1_000
    assert await world.count(Booking, Booking.tenant_id == world.tenant) == 9_009
    # Some rows go in by the batch, of which a thousand nodes need a few more.
    assert len(for_many) <= len(for_one) + 20, for_many


def test_attributes_merge_at_every_depth() -> None:
    below = {"Configuration": {"slurm": {"a": 1, "b": 2}}, "Tags": {"x": "1"}}
    above = {"Configuration": {"slurm": {"b": 3}}, "KeepAlive": True}
    assert merged(below, above) == {
        "Configuration": {"slurm": {"a": 1, "b": 3}},
        "Tags": {"x": "1"},
        "KeepAlive": True,
    }


async def test_the_application_owns_no_table(database_urls: DatabaseUrls, world: World) -> None:
    owners = await world.fetch(
        "SELECT array_agg(DISTINCT tableowner::text) FROM pg_tables WHERE schemaname = 'public'"
    )
    assert owners == ["bringup_owner"]
