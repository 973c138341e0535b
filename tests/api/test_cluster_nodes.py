"""Create, list, terminate: sections 2, 3 and 4 of the cluster API's contract, rule by rule."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from database.clusters import NewArray
from database.tables import Node, Run
from database.unit_of_work import Database
from tests.api.client import Api
from tests.database.world import World, make_world


def one(**values: Any) -> dict[str, Any]:
    return {"count": 1, "nodearray": "gpu", **values}


async def names(api: Api, query: str = "") -> list[str]:
    return [record["Name"] for record in await api.nodes(query)]


async def test_a_node_record_has_every_field_that_clients_read(api: Api, world: World) -> None:
    await world.machines(1)
    await api.create(one())
    record = (await api.nodes())[0]
    assert {
        "Name": "gpu-1",
        "ClusterName": "demo",
        "Template": "gpu",
        "NodeArray": "gpu",
        "MachineType": "gpu8",
        "State": "Starting",
        "Status": "Acquiring",
        "TargetState": "Started",
        "PrivateIp": None,
        "Hostname": None,
        "CoreCount": 32,
        "Memory": 256.0,
        "KeepAlive": False,
        "Interruptible": False,
        "ShutdownPolicy": "Terminate",
        "Region": "north",
        "SubnetId": "rack-1",
        "IsArray": False,
        "Abstract": False,
        "Configuration": {"slurm": {"autoscale": True, "partition": "gpu"}},
    }.items() <= record.items()
    assert record["NodeId"]
    assert "PlacementGroupId" not in record
    assert "InstanceId" not in record


async def test_a_ready_node_shows_its_machine_and_address(api: Api, world: World) -> None:
    machines = await world.machines(1)
    await api.create(one())
    await world.set(
        Node,
        Node.tenant_id == world.tenant,
        status="Ready",
        hostname="gpu-1",
        private_ip="10.0.0.7",
        instance_id=machines[0],
    )
    record = (await api.nodes())[0]
    shown = {key: record[key] for key in ("State", "Status", "Hostname", "PrivateIp", "InstanceId")}
    assert shown == {
        "State": "Started",
        "Status": "Ready",
        "Hostname": "gpu-1",
        "PrivateIp": "10.0.0.7",
        "InstanceId": machines[0],
    }


async def test_attributes_never_cover_the_facts(api: Api, world: World) -> None:
    await world.machines(1)
    await api.create(
        one(nodeAttributes={"NodeId": "x", "Status": "Ready", "Custom": 1, "PlacementGroupId": None})
    )
    record = (await api.nodes())[0]
    assert (record["Status"], record["Custom"], "PlacementGroupId" in record) == ("Acquiring", 1, False)
    assert record["NodeId"] != "x"


async def test_c4_1_1_sets_need_count_and_nodearray_only(api: Api, world: World) -> None:
    await world.machines(3)
    answer = await api.create(
        one(), one(definition={}), one(definition={"machineType": "gpu8", "SubnetId": "x"}, other=1)
    )
    assert answer.json()["sets"] == [{"added": 1}] * 3


async def test_c4_1_1_without_a_machine_type_the_first_bucket_that_satisfies_is_used(
    api: Api, world: World
) -> None:
    await world.machines(1, "cpu")
    await world.machines(2, "gpu8")
    await world.add_cluster(
        "two", NewArray("any", world.pool_id, world.profile, machine_types=["cpu", "gpu8"])
    )
    await api.create({"count": 2, "nodearray": "any"}, cluster="two")
    assert {record["MachineType"] for record in await api.nodes(cluster="two")} == {"gpu8"}


async def test_c4_1_2_default_names_are_the_lowest_free_ones(api: Api, world: World) -> None:
    await world.machines(5)
    await api.create(one(count=3))
    await world.set(Node, (Node.tenant_id == world.tenant) & (Node.name == "gpu-2"), removed_at=_now())
    await api.create(one(), one())
    assert sorted(await names(api)) == ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]


def _now() -> datetime:
    return datetime.now(UTC)


async def test_c4_1_3_formats_literal_and_numbered_with_an_offset(api: Api, world: World) -> None:
    await world.machines(6)
    answer = await api.create(
        one(nameFormat="hpc-pg0-%d", count=2, nameOffset=3),
        one(nameFormat="hpc-1"),
        one(nameFormat="hpc-1"),
        one(nameFormat="solo", count=2),
        one(nameFormat="100-%02d"),
    )
    added = [done["added"] for done in answer.json()["sets"]]
    assert added == [2, 1, 0, 1, 1]
    assert all("%d" in done["message"] for done in answer.json()["sets"][2:4])
    assert sorted(await names(api)) == ["100-01", "hpc-1", "hpc-pg0-3", "hpc-pg0-4", "solo"]


async def test_c4_1_4_attributes_are_merged_deeply_over_the_arrays(api: Api, world: World) -> None:
    await world.machines(1)
    attributes = {
        "KeepAlive": True,
        "Fixed": True,
        "ShutdownPolicy": "Deallocate",
        "Configuration": {"slurm": {"partition": "hpc"}, "more": 1},
        "Tags": {"owner": "me"},
    }
    await api.create(one(nodeAttributes=attributes))
    record = (await api.nodes())[0]
    assert record["Configuration"] == {"slurm": {"autoscale": True, "partition": "hpc"}, "more": 1}
    assert (record["KeepAlive"], record["Fixed"], record["ShutdownPolicy"]) == (True, True, "Deallocate")
    assert record["Tags"] == {"owner": "me"}


async def test_c4_1_5_a_placement_group_is_listed_and_bounded(api: Api, world: World) -> None:
    await world.machines(4)
    await world.add_cluster(
        "small", NewArray("gpu", world.pool_id, world.profile, attributes={"Azure": {"MaxScalesetSize": 2}})
    )
    answer = await api.create(one(count=3, placementGroupId="pg0"), cluster="small")
    done = answer.json()["sets"][0]
    assert done["added"] == 2
    assert "placement group pg0" in done["message"]
    bucket = (await api.status(cluster="small"))["nodearrays"][0]["buckets"][0]
    assert bucket["maxPlacementGroupSize"] == 2
    assert bucket["placementGroups"] == [{"name": "pg0", "activeCount": 2, "activeCoreCount": 64}]
    assert {record["PlacementGroupId"] for record in await api.nodes(cluster="small")} == {"pg0"}


async def test_c4_1_6_what_does_not_fit_is_said_with_the_limit_that_binds(api: Api, world: World) -> None:
    await world.machines(2)
    answer = await api.create(one(count=3))
    done = answer.json()["sets"][0]
    assert (answer.status_code, done["added"]) == (202, 2)
    assert "2 free machines of type gpu8" in done["message"]
    operation = (await api.get(f"/operations/{answer.json()['operationId']}")).json()
    assert operation["message"] == done["message"]
    assert operation["state"] == "pending"


async def test_c4_1_6_when_nothing_fits_the_operation_has_failed_with_a_card(api: Api) -> None:
    answer = await api.create(one(), one())
    assert answer.status_code == 202
    assert [done["added"] for done in answer.json()["sets"]] == [0, 0]
    operation = (await api.get(f"/operations/{answer.json()['operationId']}")).json()
    assert (operation["state"], operation["card"]["failure_class"]) == ("failed", "capacity")
    assert operation["endTime"]


async def test_c4_1_6_an_unknown_array_refuses_the_whole_request(api: Api, world: World) -> None:
    await world.machines(2)
    answer = await api.create(one(), {"count": 1, "nodearray": "nope"})
    assert answer.status_code == 409
    assert "there is no nodearray nope; there are: gpu" in answer.json()["Message"]
    assert await api.nodes() == []


async def test_c4_1_7_what_was_created_is_read_at_once(api: Api, world: World) -> None:
    await world.machines(3)
    answer = await api.create(one(count=3))
    operation = answer.json()["operationId"]
    listed = await api.get(f"/clusters/demo/nodes?operation={operation}")
    assert {"gpu-1", "gpu-2", "gpu-3"} == {record["Name"] for record in listed.json()["nodes"]}
    assert listed.json()["operation"]["action"] == "create"
    status = await api.status("?nodes=true")
    assert {record["Name"] for record in status["nodes"]} == {"gpu-1", "gpu-2", "gpu-3"}
    assert all(record["NodeId"] and record["Status"] and record["TargetState"] for record in status["nodes"])


async def test_c4_2_1_selectors_are_a_union_without_duplicates(api: Api, world: World) -> None:
    await world.machines(4)
    await api.create(one(count=4))
    records = {record["Name"]: record["NodeId"] for record in await api.nodes()}
    await world.set(
        Node,
        (Node.tenant_id == world.tenant) & (Node.name == "gpu-3"),
        hostname="GPU-3.example.test",
        private_ip="10.1.1.3",
    )
    answer = await api.terminate(
        ids=[records["gpu-1"], records["gpu-1"].upper()],
        names=["gpu-1", "gpu-2"],
        hostnames=["gpu-3"],
        ip_addresses=["10.1.1.3"],
    )
    assert sorted(node["name"] for node in answer.json()["nodes"]) == ["gpu-1", "gpu-2", "gpu-3"]
    assert {node["status"] for node in answer.json()["nodes"]} == {"OK"}


async def test_c4_2_3_unknown_nodes_are_passed_over(api: Api) -> None:
    answer = await api.terminate(ids=["nope", "00000000-0000-0000-0000-000000000000"], names=["x"])
    assert (answer.status_code, answer.json()["nodes"]) == (202, [])
    operation = (await api.get(f"/operations/{answer.json()['operationId']}")).json()
    assert (operation["action"], operation["state"]) == ("terminate", "succeeded")


@pytest.mark.parametrize("body", [{}, {"requestId": "x"}, {"filter": 'State === "Started"'}, {"ids": "a"}])
async def test_c4_2_3_without_a_served_selector_nothing_is_selected(
    api: Api, world: World, body: dict[str, Any]
) -> None:
    await world.machines(1)
    await api.create(one())
    answer = await api.terminate(**body)
    assert answer.status_code == 409
    assert (await api.nodes())[0]["TargetState"] == "Started"
    if "filter" in body:
        assert "filter is not served by this release" in answer.json()["Message"]


async def test_c4_2_5_a_verb_has_an_operation_of_its_own_with_its_nodes(api: Api, world: World) -> None:
    await world.machines(2)
    await api.create(one(count=2))
    operation = (await api.terminate(names=["gpu-2"])).json()["operationId"]
    assert await names(api, f"?operation={operation}") == ["gpu-2"]


async def test_c3_3_the_target_flips_in_the_202_itself(api: Api, world: World) -> None:
    await world.machines(1)
    await api.create(one())
    answer = await api.terminate(names=["gpu-1"])
    assert answer.status_code == 202
    record = (await api.nodes())[0]
    assert (record["TargetState"], record["Status"], record["State"]) == (
        "Terminated",
        "Terminating",
        "Terminating",
    )


async def test_terminate_raises_the_generation_and_its_run_carries_it(api: Api, world: World) -> None:
    await world.machines(1)
    await api.create(one())
    operation = (await api.terminate(names=["gpu-1"])).json()["operationId"]
    assert await world.count(Run, Run.operation_id == operation, Run.generation == 2) == 1
    assert await world.count(Node, Node.tenant_id == world.tenant, Node.generation == 2) == 1


async def test_a_node_that_terminates_already_is_ok_and_gets_no_second_run(api: Api, world: World) -> None:
    await world.machines(1)
    await api.create(one())
    await api.terminate(names=["gpu-1"])
    answer = await api.terminate(names=["gpu-1"])
    assert [node["status"] for node in answer.json()["nodes"]] == ["OK"]
    assert await world.count(Run, Run.operation_id == answer.json()["operationId"]) == 0
    assert await world.count(Node, Node.tenant_id == world.tenant, Node.generation == 2) == 1


async def test_s11_keep_alive_refuses_terminate_for_that_node_only(api: Api, world: World) -> None:
    await world.machines(2)
    await api.create(one(), one(nodeAttributes={"KeepAlive": True}))
    answer = await api.terminate(names=["gpu-1", "gpu-2"])
    nodes = {node["name"]: node for node in answer.json()["nodes"]}
    assert nodes["gpu-1"]["status"] == "OK"
    assert nodes["gpu-2"]["status"] == "Error"
    assert "KeepAlive" in nodes["gpu-2"]["error"]
    states = {record["Name"]: record["TargetState"] for record in await api.nodes()}
    assert states == {"gpu-1": "Terminated", "gpu-2": "Started"}


async def test_a_removed_node_frees_its_name_and_is_missing_from_its_operation(
    api: Api, world: World
) -> None:
    await world.machines(2)
    operation = (await api.create(one())).json()["operationId"]
    await world.set(
        Node,
        Node.tenant_id == world.tenant,
        status="Terminated",
        target_state="Terminated",
        removed_at=_now(),
    )
    assert await names(api, f"?operation={operation}") == []
    await api.create(one())
    assert await names(api) == ["gpu-1"]


async def test_s12_a_repeat_is_409_with_the_first_operation_in_body_and_location(
    api: Api, world: World
) -> None:
    await world.machines(3)
    first = await api.create(one(), requestId="r1")
    for repeat in (await api.create(one(), requestId="r1"), await api.terminate(ids=[], requestId="r1")):
        assert repeat.status_code == 409
        assert repeat.json()["operationId"] == first.json()["operationId"]
        assert repeat.headers["location"] == first.headers["location"]
    assert len(await api.nodes()) == 1


async def test_s12_of_a_hundred_concurrent_repeats_exactly_one_is_202(api: Api, world: World) -> None:
    await world.machines(3)
    answers = await asyncio.gather(*(api.create(one(), requestId="storm") for _ in range(100)))
    codes = [answer.status_code for answer in answers]
    assert (codes.count(202), codes.count(409)) == (1, 99)
    assert len(await api.nodes("?request_id=storm")) == 1


async def test_s12_a_rejected_request_does_not_burn_its_id(api: Api, world: World) -> None:
    await world.machines(1)
    assert (await api.create({"count": 1, "nodearray": "nope"}, requestId="r")).status_code == 409
    assert (await api.create(one(), requestId="r")).status_code == 202


async def test_s1_a_request_id_belongs_to_its_tenant(api: Api, world: World, database: Database) -> None:
    other = await make_world(database)
    theirs = Api(api.client, other.token, other.tenant)
    assert (await api.create(one(), requestId="mine")).status_code == 202
    assert (await theirs.get("/clusters/demo/nodes?request_id=mine")).status_code == 404
    assert (await theirs.get("/operations/?request_id=mine")).json() == []
    assert (await theirs.create(one(), requestId="mine")).status_code == 202


async def test_s6_query_combinations(api: Api) -> None:
    made = await api.create(one(), requestId="known")
    operation = made.json()["operationId"]
    for path, status in (
        (f"/clusters/demo/nodes?operation={operation}&request_id=known", 400),
        ("/clusters/demo/nodes?operation=", 400),
        ("/clusters/demo/nodes?request_id=", 400),
        ("/operations/?request_id=", 400),
        ("/operations/?request_id=unknown", 200),
        ("/operations/00000000-0000-0000-0000-000000000000", 404),
        ("/operations/nonsense", 404),
        ("/clusters/demo/nodes?operation=nonsense", 404),
        ("/clusters/demo/nodes?request_id=known", 200),
        (f"/operations/{operation}", 200),
    ):
        answer = await api.get(path)
        assert answer.status_code == status, path
    assert [one["id"] for one in (await api.get("/operations/?request_id=known")).json()] == [operation]


async def test_an_operation_tells_progress_and_where_its_workflow_is(api: Api, world: World) -> None:
    await world.machines(2)
    operation = (await api.create(one(count=2))).json()["operationId"]
    body = (await api.get(f"/operations/{operation}")).json()
    assert (body["action"], body["state"], body["counts"]) == ("create", "pending", {"pending": 2})
    assert body["workflowId"] == f"operation/{operation}"
    assert body["workflowUrl"] == f"http://ui.test/namespaces/default/workflows/operation%2F{operation}"
    assert [run["name"] for run in body["progress"]] == ["gpu-1", "gpu-2"]
    assert {run["nodeId"] for run in body["progress"]} == {record["NodeId"] for record in await api.nodes()}
    assert body["startTime"].endswith("Z")
    listed = (await api.get("/operations/")).json()
    assert [one["id"] for one in listed] == [operation]


async def test_a_large_create_is_bounded(api: Api) -> None:
    many = await api.post("/clusters/demo/nodes/create", {"sets": [{"count": 1, "nodearray": "gpu"}] * 1_001})
    assert many.status_code == 409
    assert "1 to 1000" in json.loads(many.text)["Message"]
