"""`bringup logs --follow`: what a step prints, as it comes, until nothing more can come."""

import asyncio
import signal
from asyncio.subprocess import Process

import pytest

from database.unit_of_work import Database
from domain.states import RunState
from tests.cli.conftest import WITHIN, Cli, finish
from tests.cli.work import begin, end, end_runs, print_in_step, print_more
from tests.database import decisions as made
from tests.database.world import World


async def created(world: World, count: int = 1) -> tuple[str, list[str]]:
    """An operation and the machines of its nodes."""
    operation_id = await made.created_nodes(world, count)
    runs = await made.runs_of(world, operation_id)
    machines = [(await made.node_of(world, run)).machine_id or "" for run in runs.values()]
    return str(operation_id), machines


async def line(process: Process) -> bytes:
    """The next line of its standard output."""
    assert process.stdout is not None
    return await asyncio.wait_for(process.stdout.readline(), WITHIN)


async def test_a_running_steps_output_comes_as_it_is_printed_until_the_step_has_ended(
    cli: Cli, world: World, database: Database
) -> None:
    operation, (machine,) = await created(world)
    step = await begin(database, operation, "gpu-1", "hello", machine=machine)
    await print_more(database, step, stdout=b"first\n")
    process = await cli.start("logs", operation, "--node", "gpu-1", "--step", "hello", "--follow")
    assert await line(process) == b"first\n"
    await print_more(database, step, stdout=b"second\n")
    assert await line(process) == b"second\n"
    await print_more(database, step, stderr=b"to stderr\n")
    assert await line(process) == b"to stderr\n"
    await print_more(database, step, stdout=b"\xff\x00 last, without a line end")
    await end(database, step)
    done = await finish(process)
    assert done.status == 0
    assert done.output == b"\xff\x00 last, without a line end"
    assert done.errors.splitlines() == [
        "== gpu-1, step hello, attempt 1: running",
        "-- succeeded, exit 0",
    ]


async def test_steps_that_begin_later_are_followed_until_the_node_has_ended(
    cli: Cli, world: World, database: Database
) -> None:
    operation, (machine, other) = await created(world, 2)
    await print_in_step(database, operation, "gpu-2", "hello", machine=other, stdout=b"not asked for\n")
    process = await cli.start("logs", operation, "--node", "gpu-1", "--follow")
    await print_in_step(database, operation, "gpu-1", "hello", machine=machine, stdout=b"one\n")
    assert await line(process) == b"one\n"
    step = await begin(database, operation, "gpu-1", "more", machine=machine, position=1)
    await print_more(database, step, stdout=b"two\n")
    assert await line(process) == b"two\n"
    await end(database, step, exit_status=3)
    step = await begin(database, operation, "gpu-1", "more", machine=machine, position=1, attempt=2)
    await print_more(database, step, stdout=b"three\n")
    assert await line(process) == b"three\n"
    await end(database, step)
    await end_runs(database, operation, {"gpu-1": RunState.SUCCEEDED})
    done = await finish(process)
    assert (done.status, done.output) == (0, b"")
    assert "-- failed, exit 3" in done.errors


async def test_a_step_that_failed_is_over_once_another_one_has_begun(
    cli: Cli, world: World, database: Database
) -> None:
    operation, (machine,) = await created(world)
    step = await begin(database, operation, "gpu-1", "hello", machine=machine)
    await end(database, step, exit_status=1)
    process = await cli.start("logs", operation, "--node", "gpu-1", "--step", "hello", "-f")
    assert process.stderr is not None
    await asyncio.wait_for(process.stderr.readline(), WITHIN)
    assert process.returncode is None
    await begin(database, operation, "gpu-1", "more", machine=machine, position=1)
    assert (await finish(process)).status == 0


async def test_one_attempt_is_over_with_its_own_end(cli: Cli, world: World, database: Database) -> None:
    operation, (machine,) = await created(world)
    step = await begin(database, operation, "gpu-1", "hello", machine=machine)
    await end(database, step, exit_status=1)
    chosen = ("--node", "gpu-1", "--step", "hello", "--attempt", "1")
    assert (await cli.run("logs", operation, *chosen, "--follow")).status == 0


async def test_a_step_that_never_ended_is_over_with_its_node(
    cli: Cli, world: World, database: Database
) -> None:
    operation, (machine,) = await created(world)
    step = await begin(database, operation, "gpu-1", "hello", machine=machine)
    await print_more(database, step, stdout=b"the worker was lost\n")
    await end_runs(database, operation, {"gpu-1": RunState.FAILED})
    done = await cli.run("logs", operation, "--follow")
    assert (done.status, done.output) == (0, b"the worker was lost\n")
    assert "-- running" in done.errors


async def test_ctrl_c_ends_the_following_with_130_and_nothing_else(
    cli: Cli, world: World, database: Database
) -> None:
    operation, (machine,) = await created(world)
    step = await begin(database, operation, "gpu-1", "hello", machine=machine)
    await print_more(database, step, stdout=b"first\n")
    process = await cli.start("logs", operation, "--follow")
    assert await line(process) == b"first\n"
    process.send_signal(signal.SIGINT)
    done = await finish(process)
    assert done.status == 130
    assert done.errors.splitlines()[1:] == ["bringup: stopped following; the operation goes on"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--node", "gpu-7"), "has no node gpu-7; there are gpu-1"),
        (("-o", "json"), "leave out one of --follow and -o json"),
    ],
)
async def test_what_cannot_be_followed_is_refused_at_once(
    cli: Cli, world: World, arguments: tuple[str, ...], said: str
) -> None:
    operation, _ = await created(world)
    done = await cli.run("logs", operation, "--follow", *arguments)
    assert done.status == 2
    assert done.output == b""
    assert said in done.errors


async def test_an_operation_that_ended_without_a_step_says_so(
    cli: Cli, world: World, database: Database
) -> None:
    operation, _ = await created(world)
    await end_runs(database, operation, {"gpu-1": RunState.FAILED})
    done = await cli.run("logs", operation, "--follow")
    assert done.status == 2
    assert f"no step of operation {operation} has begun" in done.errors
