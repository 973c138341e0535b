"""Logs of steps: the machine's bytes, chosen by node, step, attempt and stream."""

import pytest_asyncio

from cli.output import neutral
from database.unit_of_work import Database
from tests.cli.conftest import Cli
from tests.cli.work import print_in_step
from tests.database.world import World

BYTES = b"\x1b[31mred\x1b[0m \xff\xfe\x00 no line end"


@pytest_asyncio.fixture(loop_scope="session")
async def operation(cli: Cli, world: World, database: Database) -> str:
    """A create of two nodes whose steps have printed something."""
    machines = await world.machines(2)
    done = await cli.run("nodes", "create", "demo", "--array", "gpu", "--count", "2", "-o", "json")
    made = str(done.json()["operationId"])
    for node, machine in zip(("gpu-1", "gpu-2"), machines, strict=True):
        out, err = f"{node} out\n".encode(), f"{node} err\n".encode()
        await print_in_step(database, made, node, "hello", machine=machine, stdout=out, stderr=err)
    for attempt, data in ((1, b"first"), (2, BYTES)):
        await print_in_step(
            database,
            made,
            "gpu-1",
            "bytes",
            machine=machines[0],
            stdout=data,
            position=1,
            attempt=attempt,
        )
    return made


async def test_a_redirected_log_holds_the_machines_bytes_and_nothing_else(cli: Cli, operation: str) -> None:
    done = await cli.run("logs", operation, "--node", "gpu-1", "--step", "bytes", "--attempt", "2")
    assert done.status == 0
    assert done.output == BYTES
    assert "gpu-1, step bytes, attempt 2: succeeded, exit 0" in done.errors


async def test_steps_come_in_order_each_with_stdout_before_stderr(cli: Cli, operation: str) -> None:
    done = await cli.run("logs", operation, "--node", "gpu-1")
    assert done.output == b"gpu-1 out\ngpu-1 err\nfirst" + BYTES


async def test_one_stream_can_be_chosen(cli: Cli, operation: str) -> None:
    assert (await cli.run("logs", operation, "--step", "hello", "--stderr")).output == (
        b"gpu-1 err\ngpu-2 err\n"
    )
    assert (await cli.run("logs", operation, "--node", "gpu-2", "--stdout")).output == b"gpu-2 out\n"


async def test_as_json_each_step_run_carries_its_text(cli: Cli, operation: str) -> None:
    runs = (await cli.run("logs", operation, "--node", "gpu-2", "-o", "json")).json()
    assert [(run["step"], run["stdout"], run["stderr"]) for run in runs] == [
        ("hello", "gpu-2 out\n", "gpu-2 err\n")
    ]


async def test_a_log_longer_than_one_answer_comes_whole(
    cli: Cli, world: World, database: Database, operation: str
) -> None:
    long = bytes(range(256)) * 10_000
    machine = (await world.machines(1))[0]
    await print_in_step(database, operation, "gpu-2", "long", machine=machine, stdout=long, position=1)
    assert (await cli.run("logs", operation, "--step", "long")).output == long


async def test_a_choice_that_fits_nothing_says_what_there_is(cli: Cli, operation: str) -> None:
    done = await cli.run("logs", operation, "--node", "gpu-7")
    assert done.status == 2
    assert "there are nodes gpu-1, gpu-2 and steps hello, bytes" in done.errors


def test_what_could_drive_a_terminal_is_made_visible() -> None:
    assert neutral("a\x1b]0;title\x07b\x9b31m\r\n\tc\rd") == "a\\x1b]0;title\\x07b\\x9b31m\n\tc\\rd"
    assert neutral("user\u202egnp.exe") == "user\\u202egnp.exe"
    assert neutral("grüße, 世界") == "grüße, 世界"
