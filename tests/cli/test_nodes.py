"""Nodes and operations through the commands: what is printed, what it ends with."""

import asyncio
import signal

import pytest

from database.tables import Node
from database.unit_of_work import Database
from domain.states import RunState
from tests.cli.conftest import WITHIN, Cli, finish
from tests.cli.work import end_runs
from tests.database.world import World

CREATE = ("nodes", "create", "demo", "--array", "gpu")


async def created(cli: Cli, count: int) -> str:
    """The operation of a create that was accepted whole."""
    done = await cli.run(*CREATE, "--count", str(count), "-o", "json")
    assert done.status == 0, done.errors
    return str(done.json()["operationId"])


async def test_a_create_answers_at_once_and_says_how_to_watch_it(cli: Cli, world: World) -> None:
    await world.machines(2)
    done = await cli.run(*CREATE, "--count", "2")
    assert done.status == 0
    first, second = done.text.splitlines()
    operation = first.split()[1].rstrip(":")
    assert first == f"operation {operation}: 2 of 2 nodes in demo/gpu"
    assert second == f"watch it with: bringup operations watch {operation}"
    assert done.errors == ""


async def test_nodes_are_listed_with_what_the_api_says_of_them(cli: Cli, world: World) -> None:
    machines = await world.machines(1)
    await created(cli, 1)
    ready = {"status": "Ready", "hostname": "gpu-1", "private_ip": "10.0.0.7", "instance_id": machines[0]}
    await world.set(Node, Node.tenant_id == world.tenant, **ready)
    listed = (await cli.run("nodes", "list", "demo", "-o", "json")).json()
    assert [(node["Name"], node["Status"], node["PrivateIp"]) for node in listed] == [
        ("gpu-1", "Ready", "10.0.0.7")
    ]
    row = (await cli.run("nodes", "list", "demo")).text.splitlines()[1].split()
    assert row[:7] == ["gpu-1", "gpu", "Ready", "gpu-1", "10.0.0.7", "gpu8", machines[0]]


async def test_fewer_nodes_than_asked_for_end_with_3_and_none_with_1(cli: Cli, world: World) -> None:
    await world.machines(1)
    some = await cli.run(*CREATE, "--count", "3", "-o", "json")
    assert some.status == 3
    assert some.json()["sets"][0]["added"] == 1
    assert "1 of 3" in some.errors
    none = await cli.run(*CREATE, "--count", "1")
    assert none.status == 1
    assert "0 of 1" in none.errors


async def test_a_request_id_is_taken_once_and_names_its_operation(cli: Cli, world: World) -> None:
    await world.machines(2)
    first = await cli.run(*CREATE, "--request-id", "job-1", "-o", "json")
    second = await cli.run(*CREATE, "--request-id", "job-1", "-o", "json")
    assert (first.status, second.status) == (0, 2)
    assert second.output == b""
    assert first.json()["operationId"] in second.errors
    assert len((await cli.run("nodes", "list", "demo", "-o", "json")).json()) == 1


async def test_terminate_says_what_became_of_each_name(cli: Cli, world: World) -> None:
    await world.machines(1)
    await created(cli, 1)
    unknown = await cli.run("nodes", "terminate", "demo", "gpu-9")
    assert unknown.status == 2
    assert unknown.output == b""
    assert "gpu-9: cluster demo has no such node" in unknown.errors
    both = await cli.run("nodes", "terminate", "demo", "gpu-1", "gpu-9", "-o", "json")
    assert both.status == 3
    assert [(node["name"], node["status"]) for node in both.json()["nodes"]] == [("gpu-1", "OK")]


@pytest.mark.parametrize(
    ("ends", "status"),
    [
        ((RunState.SUCCEEDED, RunState.SUCCEEDED), 0),
        ((RunState.FAILED, RunState.FAILED), 1),
        ((RunState.CANCELED, RunState.CANCELED), 1),
        ((RunState.SUCCEEDED, RunState.FAILED), 3),
    ],
)
async def test_watching_ends_as_the_operation_ended(
    cli: Cli, world: World, database: Database, ends: tuple[RunState, RunState], status: int
) -> None:
    await world.machines(2)
    operation = await created(cli, 2)
    await end_runs(database, operation, dict(zip(("gpu-1", "gpu-2"), ends, strict=True)))
    watched = await cli.run("operations", "watch", operation)
    assert watched.status == status
    lines = watched.text.splitlines()
    assert [line.split()[1:3] for line in lines[:2]] == [["gpu-1", ends[0]], ["gpu-2", ends[1]]]
    assert "2 of 2 done" in lines[2]
    assert ("exited with status 3" in watched.text) == (RunState.FAILED in ends)
    as_json = await cli.run("operations", "watch", operation, "-o", "json")
    assert as_json.status == status
    assert as_json.json()["id"] == operation


async def test_watching_follows_changes_until_the_end(cli: Cli, world: World, database: Database) -> None:
    await world.machines(2)
    operation = await created(cli, 2)
    process = await cli.start("operations", "watch", operation)
    assert process.stdout is not None
    seen = [(await asyncio.wait_for(process.stdout.readline(), WITHIN)).decode() for _ in range(2)]
    assert all("pending" in line for line in seen)
    await end_runs(database, operation, {"gpu-1": RunState.SUCCEEDED})
    line = (await asyncio.wait_for(process.stdout.readline(), WITHIN)).decode()
    assert line.split()[1:] == ["gpu-1", "succeeded"]
    await end_runs(database, operation, {"gpu-2": RunState.SUCCEEDED})
    done = await finish(process)
    assert done.status == 0
    assert "gpu-1" not in done.text


async def test_ctrl_c_ends_the_watching_with_130_and_says_that_the_operation_goes_on(
    cli: Cli, world: World
) -> None:
    await world.machines(1)
    process = await cli.start(*CREATE, "--wait")
    assert process.stdout is not None
    first = (await asyncio.wait_for(process.stdout.readline(), WITHIN)).decode()
    operation = first.split()[1].rstrip(":")
    await asyncio.wait_for(process.stdout.readline(), WITHIN)  # the first look at the operation
    process.send_signal(signal.SIGINT)
    done = await finish(process)
    assert done.status == 130
    assert done.errors.splitlines() == [
        "bringup: stopped watching; the operation goes on; watch it with: "
        f"bringup operations watch {operation}"
    ]
    assert (await cli.run("operations", "show", operation, "-o", "json")).json()["state"] == "pending"


async def test_waiting_too_long_ends_with_4_and_still_prints_the_id(cli: Cli, world: World) -> None:
    await world.machines(1)
    done = await cli.run(*CREATE, "--wait", "--timeout", "0.1", "-o", "json")
    assert done.status == 4
    assert done.json()["operationId"] in done.errors
    assert "goes on" in done.errors


async def test_operations_are_listed_and_shown(cli: Cli, world: World, database: Database) -> None:
    await world.machines(2)
    first, second = await created(cli, 1), await created(cli, 1)
    await end_runs(database, first, {"gpu-1": RunState.FAILED})
    listed = (await cli.run("operations", "list", "-o", "json")).json()
    assert [one["id"] for one in listed] == [second, first]
    newest = (await cli.run("operations", "list", "--limit", "1", "-o", "json")).json()
    assert [one["id"] for one in newest] == [second]
    failed = await cli.run("operations", "list", "--cluster", "demo", "--state", "failed")
    assert [line.split()[:3] for line in failed.text.splitlines()[1:]] == [[first, "create", "failed"]]
    shown = (await cli.run("operations", "show", first)).text
    assert f"create {first}: failed, 1 of 1 done" in shown
    assert "step hello: exited with status 3" in shown


async def test_what_is_not_there_is_an_empty_list(cli: Cli) -> None:
    assert (await cli.run("nodes", "list", "demo")).text == "cluster demo has no nodes\n"
    assert (await cli.run("nodes", "list", "demo", "-o", "json")).json() == []


async def test_lists_show_what_there_is(cli: Cli, world: World) -> None:
    machines = await world.machines(1)
    assert (await cli.run("clusters", "list")).text.splitlines()[1].split() == [
        *("demo", "Started", "gpu", world.profile, world.pool_id)
    ]
    pools = (await cli.run("pools", "list", "-o", "json")).json()
    assert [pool["id"] for pool in pools] == [world.pool_id]
    assert f"{world.profile}  no " in (await cli.run("profiles", "list")).text
    row = (await cli.run("machines", "list")).text.splitlines()[1].split()
    assert (row[1], row[2], row[-1]) == ("ready", "no", machines[0])
    assert (await cli.run("machines", "list", "--state", "failed", "-o", "json")).json() == []
