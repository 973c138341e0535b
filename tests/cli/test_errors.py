"""What a command says, and what it ends with, when it does not get what it asked for."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cli.dev.ports import LOOPBACK, free_port
from database.unit_of_work import Database
from domain.permissions import Role
from tests.cli.conftest import Cli, Done
from tests.database.world import World, make_world


def one_line(done: Done) -> str:
    """The only line of the error output; standard output must be empty."""
    assert done.output == b""
    lines = done.errors.splitlines()
    assert len(lines) == 1, done.errors
    return lines[0]


@asynccontextmanager
async def answering(status: str, body: bytes) -> AsyncIterator[str]:
    """A server that is not ours: it answers everything with the same."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    async with server:
        yield f"http://{LOOPBACK}:{server.sockets[0].getsockname()[1]}"


async def test_without_an_api_it_says_where_it_looked_and_ends_with_5(lost: Cli) -> None:
    address = f"http://{LOOPBACK}:{free_port()}"
    done = await lost.told(api=address, token="t").run("pools", "list")
    assert done.status == 5
    said = one_line(done)
    assert address in said
    assert "Connection refused" in said


async def test_an_api_that_never_answered_is_not_waited_for(lost: Cli) -> None:
    address = f"http://{LOOPBACK}:{free_port()}"
    began = time.monotonic()
    done = await lost.told(api=address, token="t").run("operations", "watch", "some")
    assert done.status == 5
    assert time.monotonic() - began < 10


async def test_a_lost_answer_is_told_apart_from_a_request_that_was_never_sent(lost: Cli) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(hang_up, LOOPBACK, 0)
    async with server:
        url = f"http://{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
        done = await lost.told(api=url, token="t").run("nodes", "create", "demo", "--array", "gpu")
    assert done.status == 5
    assert "may have been carried out" in one_line(done)


async def test_an_api_that_cannot_serve_now_is_not_a_refusal(lost: Cli) -> None:
    body = b'{"error": {"code": "UNAVAILABLE", "message": "the database does not answer", "details": []}}'
    async with answering("503 Service Unavailable", body) as url:
        done = await lost.told(api=url, token="t").run("pools", "list")
    assert done.status == 5
    assert "the database does not answer" in one_line(done)


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[1, 2]", b"", b'"text"'])
async def test_a_server_that_is_no_api_is_recognised(lost: Cli, body: bytes) -> None:
    async with answering("200 OK", body) as url:
        done = await lost.told(api=url, token="t").run("pools", "list")
    assert done.status == 2
    assert "not understood" in one_line(done)


async def test_a_fault_of_the_api_names_its_correlation_id(lost: Cli) -> None:
    body = b'{"error": {"code": "INTERNAL", "message": "a fault", "details": [], "correlationId": "c-17"}}'
    async with answering("500 Internal Server Error", body) as url:
        done = await lost.told(api=url, token="t").run("pools", "list")
    assert done.status == 1
    assert one_line(done) == "bringup: INTERNAL: a fault [correlation id c-17]"


async def test_control_characters_of_an_answer_do_not_reach_the_terminal(lost: Cli) -> None:
    body = b'{"error": {"code": "X", "message": "red \\u001b[31m\\nand more", "details": []}}'
    async with answering("409 Conflict", body) as url:
        done = await lost.told(api=url, token="t").run("pools", "list")
    assert one_line(done) == "bringup: X: red \\x1b[31m and more"


@pytest.mark.parametrize("address", ["nonsense", "ftp://127.0.0.1", "http://", "http://[::"])
async def test_what_is_no_address_is_a_mistake_of_the_caller(lost: Cli, address: str) -> None:
    done = await lost.told(api=address, token="t").run("pools", "list")
    assert done.status in (2, 5)
    assert address in one_line(done)


async def test_without_a_token_it_says_how_to_give_one(lost: Cli) -> None:
    done = await lost.run("pools", "list")
    assert done.status == 2
    assert "BRINGUP_TOKEN" in one_line(done)


async def test_a_wrong_token_is_refused(cli: Cli) -> None:
    done = await cli.told(token="bup_wrong").run("nodes", "list", "demo")
    assert done.status == 2
    assert one_line(done).startswith("bringup: UNAUTHENTICATED: ")


async def test_a_role_that_may_not_is_told_so(cli: Cli, world: World) -> None:
    viewer = cli.told(token=await world.token_for(Role.VIEWER))
    done = await viewer.run("nodes", "create", "demo", "--array", "gpu")
    assert done.status == 2
    assert one_line(done).startswith("bringup: FORBIDDEN: ")


async def test_another_tenants_cluster_does_not_exist(cli: Cli, world: World, database: Database) -> None:
    await world.add_cluster("mine")
    stranger = cli.told(token=(await make_world(database)).token)
    assert "NOT_FOUND: there is no cluster mine" in one_line(await stranger.run("nodes", "list", "mine"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nodes", "create", "demo", "--array", "gpuu"), "there are: gpu"),
        (("nodes", "create", "demo", "--array", "gpu", "--count", "0"), "sets[0].count: "),
        (("nodes", "create", "demo", "--array", "gpu", "--count", "1000000000"), "from 1 to 10000"),
        (("nodes", "create", "nope", "--array", "gpu"), "there is no cluster nope"),
        (("nodes", "list", "no such ü?"), "there is no cluster 'no such ü?'"),
        (("operations", "show", "nonsense"), "there is no operation nonsense"),
        (("operations", "cancel", "nonsense"), "operationId: "),
        (("operations", "list", "--state", "odd"), "state: "),
        (("logs", "nonsense"), "operationId: "),
        (("machines", "list", "--site", "here"), "siteId: "),
    ],
)
async def test_a_refused_request_names_the_place_and_what_is_accepted(
    cli: Cli, arguments: tuple[str, ...], said: str
) -> None:
    for output in ("table", "json"):
        done = await cli.run(*arguments, "-o", output)
        assert done.status == 2
        assert said in one_line(done)


@pytest.mark.parametrize(
    "arguments",
    [("nodes", "create", "demo"), ("nodes", "terminate", "demo"), ("pools", "list", "-o", "xml"), ("nope",)],
)
async def test_a_wrong_command_line_ends_with_2(cli: Cli, arguments: tuple[str, ...]) -> None:
    done = await cli.run(*arguments)
    assert done.status == 2
    assert done.output == b""
    assert "--help" in done.errors


async def test_the_token_may_be_a_file(cli: Cli, world: World, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(world.token + "\n")
    assert (await cli.told(token=str(file)).run("pools", "list")).status == 0
    done = await cli.told(token=str(tmp_path / "absent")).run("pools", "list")
    assert done.status == 2
    assert "no token can be read" in one_line(done)


async def test_every_command_teaches_with_an_example(lost: Cli) -> None:
    commands = [
        ("nodes", "create"),
        ("nodes", "list"),
        ("nodes", "terminate"),
        ("operations", "list"),
        ("operations", "show"),
        ("operations", "watch"),
        ("operations", "cancel"),
        ("operations", "retry"),
        ("operations", "resume"),
        ("operations", "abort"),
        ("clusters", "list"),
        ("pools", "list"),
        ("profiles", "list"),
        ("machines", "list"),
        ("machines", "show"),
        ("logs",),
        ("apply",),
        ("dev",),
        ("doctor",),
    ]
    for command in commands:
        done = await lost.run(*command, "--help")
        assert done.status == 0
        assert f"bringup {' '.join(command)} " in done.text
        assert "Example" in done.text or "Start here" in done.text
