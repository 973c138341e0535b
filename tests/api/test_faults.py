"""What goes wrong below the API: faults are reported with an id, and nothing half done is kept."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI, Request, Response
from sqlalchemy import insert, text
from sqlalchemy.ext.asyncio import AsyncSession
from structlog.testing import capture_logs

from api.access import Caller
from api.answers import Answer
from api.app import create_app
from api.routing import add_reader
from api.settings import ApiSettings
from database.tables import Cluster, Event
from database.unit_of_work import Database
from domain.permissions import Permission
from tests.api.client import Api
from tests.database.world import World, one_line

ONE = {"count": 1, "nodearray": "gpu"}


async def broken(request: Request, session: AsyncSession, caller: Caller) -> Response:
    """A route with a fault."""
    raise RuntimeError("secret detail")


async def undecided(request: Request, session: AsyncSession, caller: Caller) -> Response:
    """A route that forgets to decide after it has written."""
    row = {"tenant_id": caller.tenant_id, "type": "x", "subject": "undecided", "actor": "x", "data": {}}
    await session.execute(insert(Event), [row])
    return Answer({})


@pytest_asyncio.fixture(loop_scope="session")
async def faulty(database: Database, world: World) -> AsyncIterator[Api]:
    """The application with two more routes, which are wrong."""
    app: FastAPI = create_app(database, ApiSettings())
    for path, handler in (("/broken", broken), ("/api/undecided", undecided)):
        add_reader(app.router, path, Permission.CLUSTERS_READ, handler)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api.test") as client:
        yield Api(client, world.token, world.tenant)


async def test_a_fault_is_500_with_a_correlation_id_under_which_the_trace_is_logged(faulty: Api) -> None:
    with capture_logs() as logs:
        answer = await faulty.get("/broken", **{"X-Correlation-Id": "my-own-id-1"})
    assert answer.status_code == 500
    assert one_line(answer.text)["correlationId"] == "my-own-id-1"
    assert "secret detail" not in answer.text
    logged = next(line for line in logs if line["event"] == "internal error")
    assert (logged["correlation_id"], str(logged["exc_info"])) == ("my-own-id-1", "secret detail")


async def test_a_route_that_did_not_decide_answers_500_and_keeps_nothing(faulty: Api, world: World) -> None:
    answer = await faulty.get("/api/undecided")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "INTERNAL")
    assert await world.count(Event, Event.tenant_id == world.tenant, Event.subject == "undecided") == 0


async def test_a_connection_that_dies_in_the_middle_is_503_and_the_request_can_be_repeated(
    api: Api, world: World
) -> None:
    await world.machines(1)
    async with world.database.begin() as session:
        await session.execute(
            text("SELECT 1 FROM clusters WHERE tenant_id = :t FOR UPDATE"), {"t": world.tenant}
        )
        waiting = asyncio.create_task(api.create(ONE, requestId="r"))
        async with asyncio.timeout(10):
            while not await world.fetch(  # noqa: ASYNC110  # the condition lies in another process
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE datname = current_database() AND wait_event_type = 'Lock'"
            ):
                await asyncio.sleep(0.01)
        answer = await waiting
    assert answer.status_code == 503
    assert one_line(answer.text)["code"] == "UNAVAILABLE"
    assert (await api.create(ONE, requestId="r")).status_code == 202


async def test_connections_that_died_while_idle_are_replaced_unseen(api: Api, world: World) -> None:
    await api.status()
    async with world.database.begin() as session:
        await session.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND usename = current_user "
                "AND pid <> pg_backend_pid() AND state = 'idle'"
            )
        )
    answers = await asyncio.gather(*(api.get("/clusters/demo/status") for _ in range(10)))
    assert {answer.status_code for answer in answers} == {200}


async def test_numbers_of_any_size_are_kept_or_refused(api: Api, world: World) -> None:
    await world.machines(2)
    big = await api.post(
        "/clusters/demo/nodes/create",
        b'{"sets": [{"count": 1, "nodearray": "gpu", "nodeAttributes": {"n": 1' + b"0" * 40 + b"}}]}",
    )
    assert big.status_code == 202
    assert (await api.nodes())[0]["n"] == 10**40
    for number in (b"1e999", b"-1e999", b"Infinity", b"1" * 5_000):
        answer = await api.post(
            "/clusters/demo/nodes/create",
            b'{"sets": [{"count": 1, "nodearray": "gpu", "nodeAttributes": {"n": ' + number + b"}}]}",
        )
        assert answer.status_code == 409


@pytest.mark.parametrize(
    "attributes",
    [
        {"ShutdownPolicy": "Sometimes"},
        {"PlacementGroupId": "x" * 256},
        {"PlacementGroupId": 7},
        {"Configuration": []},
        {"Tags": {"x": "y" * 70_000}},
    ],
)
async def test_attributes_that_could_not_be_kept_are_refused_in_both_places(
    api: Api, world: World, attributes: dict[str, object]
) -> None:
    assert (await api.create({**ONE, "nodeAttributes": attributes})).status_code == 409
    array = {"name": "a", "poolId": world.pool_id, "profile": world.profile, "attributes": attributes}
    made = await api.fleet("clusters.create", name="x", nodeArrays=[array])
    assert made.status_code == 400
    assert await world.count(Cluster, Cluster.tenant_id == world.tenant) == 1


async def test_as_many_selectors_as_a_request_may_hold_are_served(api: Api) -> None:
    many = [f"n-{number}" for number in range(10_000)]
    answer = await api.terminate(ids=many, names=many, hostnames=many, ip_addresses=many)
    assert (answer.status_code, answer.json()["nodes"]) == (202, [])
