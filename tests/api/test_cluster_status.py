"""Status: buckets as the smallest of all limits, with every field whose absence breaks a client."""

from typing import Any

import pytest
from sqlalchemy import event

from database.clusters import NewArray
from database.tables import Machine, Node, QuotaRow
from database.unit_of_work import Database
from tests.api.client import Api
from tests.database.world import World


async def bucket(api: Api, cluster: str = "demo", query: str = "") -> dict[str, Any]:
    found: dict[str, Any] = (await api.status(query, cluster))["nodearrays"][0]["buckets"][0]
    return found


def counts(found: dict[str, Any]) -> tuple[int, int, int]:
    return found["maxCount"], found["activeCount"], found["availableCount"]


async def test_section_6_every_field_that_breaks_a_client_is_there(api: Api, world: World) -> None:
    await world.machines(2)
    status = await api.status("?nodes=true")
    assert {"maxCount", "maxCoreCount", "nodearrays", "nodes", "state", "targetState"} <= set(status)
    array = status["nodearrays"][0]
    assert {"name", "maxCount", "maxCoreCount", "nodearray", "buckets"} <= set(array)
    assert (array["nodearray"]["Region"], array["nodearray"]["SubnetId"]) == ("north", "rack-1")
    assert array["nodearray"]["Configuration"]["slurm"]["autoscale"] is True
    found = array["buckets"][0]
    assert found["definition"] == {"machineType": "gpu8"}
    assert (found["valid"], found["invalidReason"], found["lastCapacityFailure"]) == (True, "", -1.0)
    kinds = ("max", "active", "available", "quota", "familyQuota", "regionalQuota")
    numbers = [f"{kind}{what}" for kind in kinds for what in ("Count", "CoreCount")]
    numbers += ["consumedCoreCount", "familyConsumedCoreCount", "regionalConsumedCoreCount"]
    numbers += ["maxPlacementGroupSize", "maxPlacementGroupCoreSize"]
    assert all(type(found[name]) is int for name in numbers)
    assert found["placementGroups"] == found["activeNodes"] == []
    assert found["virtualMachine"] == {
        "vcpuCount": 32,
        "pcpuCount": 32,
        "vcpuQuotaCount": 32,
        "gpuCount": 8,
        "memory": 256.0,
        "infiniband": False,
    }


async def test_c1_12_a_cluster_without_anything_has_lists_all_the_same(api: Api, world: World) -> None:
    await world.add_cluster("empty")
    status = await api.status("?nodes", "empty")
    assert (status["nodearrays"], status["nodes"], status["maxCount"]) == ([], [], 0)


async def test_c2_3_2_nodes_and_active_nodes_come_only_when_asked_for(api: Api, world: World) -> None:
    await world.machines(1)
    await api.create({"count": 1, "nodearray": "gpu"})
    assert "activeNodes" not in await bucket(api)
    assert (await bucket(api, query="?nodes"))["activeNodes"] == ["gpu-1"]


async def test_s5_off_nodes_are_in_nodes_but_not_in_status(api: Api, world: World) -> None:
    await world.machines(1)
    await api.create({"count": 1, "nodearray": "gpu"})
    await world.set(Node, Node.tenant_id == world.tenant, status="Off", target_state="Off")
    assert len(await api.nodes()) == 1
    assert (await api.status("?nodes"))["nodes"] == []


async def test_c2_4_2_what_is_acquiring_or_terminating_counts_as_used(api: Api, world: World) -> None:
    await world.machines(4)
    assert counts(await bucket(api)) == (4, 0, 4)
    await api.create({"count": 3, "nodearray": "gpu"})
    assert counts(await bucket(api)) == (4, 3, 1)
    await api.terminate(names=["gpu-1"])
    assert counts(await bucket(api)) == (4, 3, 1)


async def test_c2_4_3_core_counts_are_counts_times_cores(api: Api, world: World) -> None:
    await world.machines(5)
    await api.create({"count": 2, "nodearray": "gpu"})
    found = await bucket(api)
    for word in ("max", "active", "available"):
        assert found[f"{word}CoreCount"] == found[f"{word}Count"] * 32


@pytest.mark.parametrize(
    ("limits", "expected"),
    [({"max_count": 3}, (3, 1, 2)), ({"max_core_count": 70}, (2, 1, 1)), ({}, (5, 1, 4))],
)
async def test_a_bucket_is_the_smallest_of_its_limits(
    api: Api, world: World, limits: dict[str, Any], expected: tuple[int, int, int]
) -> None:
    await world.machines(5)
    await world.add_cluster("lim", NewArray("gpu", world.pool_id, world.profile, **limits))
    await api.create({"count": 1, "nodearray": "gpu"}, cluster="lim")
    assert counts(await bucket(api, "lim")) == expected


async def test_the_quota_is_among_the_limits(api: Api, world: World) -> None:
    await world.machines(5)
    await world.set(QuotaRow, QuotaRow.pool_id == world.pool_id, maximum=16)
    await api.create({"count": 1, "nodearray": "gpu"})
    found = await bucket(api)
    assert counts(found) == (2, 1, 1)
    assert (found["quotaCount"], found["familyQuotaCoreCount"]) == (2, 64)


async def test_machines_that_cannot_be_booked_are_not_available(api: Api, world: World) -> None:
    machines = await world.machines(4)
    await world.set(Machine, Machine.id == machines[0], state="cleaning")
    await world.set(Machine, Machine.id == machines[1], cordons=["me"])
    await world.set(Machine, Machine.id == machines[2], state="failed")
    assert counts(await bucket(api)) == (3, 0, 1)


async def test_two_clusters_share_a_pool_without_counting_each_others_nodes(api: Api, world: World) -> None:
    await world.machines(3)
    await world.add_cluster("second", NewArray("gpu", world.pool_id, world.profile))
    await api.create({"count": 2, "nodearray": "gpu"})
    assert counts(await bucket(api, "second")) == (3, 0, 1)


async def test_what_status_promises_is_what_a_create_adds(api: Api, world: World) -> None:
    await world.machines(7)
    await world.set(QuotaRow, QuotaRow.pool_id == world.pool_id, maximum=39)
    promised = (await bucket(api))["availableCount"]
    added = (await api.create({"count": 10, "nodearray": "gpu"})).json()["sets"][0]["added"]
    assert promised == added == 4
    assert (await bucket(api))["availableCount"] == 0


async def test_bucket_ids_stay_and_an_exhausted_bucket_stays_valid(api: Api, world: World) -> None:
    await world.machines(1)
    before = await bucket(api)
    await api.create({"count": 2, "nodearray": "gpu"})
    after = await bucket(api)
    assert before["bucketId"] == after["bucketId"]
    assert after["valid"] is True
    assert 0.0 <= after["lastCapacityFailure"] < 60.0


async def test_status_takes_the_same_number_of_queries_however_much_there_is(
    api: Api, world: World, database: Database
) -> None:
    statements: list[str] = []

    def note(*arguments: Any) -> None:
        statements.append(arguments[2])

    async def queries() -> int:
        statements.clear()
        await api.status("?nodes=true")
        return len(statements)

    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    try:
        await world.machines(1)
        await api.create({"count": 1, "nodearray": "gpu"})
        few = await queries()
        await world.machines(30)
        await world.machines(3, "cpu")
        await api.create({"count": 30, "nodearray": "gpu"}, {"count": 3, "nodearray": "gpu"})
        assert await queries() == few
    finally:
        event.remove(database.engine.sync_engine, "before_cursor_execute", note)
    assert few < 16
