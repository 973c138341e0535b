"""The cluster API's transport: section 1 of its contract, rule by rule."""

import re
from collections.abc import Iterator

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from api.access import Authorize
from api.app import create_app
from api.settings import ApiSettings
from database.unit_of_work import Database
from domain.permissions import Role
from tests.api.client import Api, basic
from tests.database.world import World, make_world, one_line

CREATE = "/clusters/demo/nodes/create"
ONE = {"sets": [{"count": 1, "nodearray": "gpu"}]}
OPEN = {"/healthz", "/openapi.json", "/docs", "/docs/oauth2-redirect"}


def routes(app: FastAPI) -> Iterator[APIRoute]:
    """Every route of ours, however the framework nests its routers."""
    pending = list(app.routes)
    while pending:
        route = pending.pop()
        if isinstance(route, APIRoute):
            yield route
        else:
            inner = getattr(route, "original_router", None) or getattr(route, "router", None)
            pending += list(getattr(inner, "routes", []))


async def test_every_route_passes_authorize(app: FastAPI) -> None:
    found = list(routes(app))
    assert len(found) > 30
    for route in found:
        if route.path in OPEN:
            continue
        guards = [d.call for d in route.dependant.dependencies if isinstance(d.call, Authorize)]
        assert guards, f"{route.path} has no Authorize"


async def test_c1_1_a_path_prefix_works_and_is_in_locations(
    api: Api, world: World, database: Database
) -> None:
    prefixed = create_app(database, ApiSettings(root_path="/cyclecloud/"))
    transport = httpx.ASGITransport(prefixed)
    async with httpx.AsyncClient(transport=transport, base_url="https://host:9443") as client:
        for path in ("/cyclecloud" + CREATE, CREATE):
            answer = await client.post(path, json=ONE, headers=basic(world.token))
            assert answer.status_code == 202
            location = answer.headers["location"]
            assert location.startswith("https://host:9443/cyclecloud/operations/")
            assert (await client.get(location, headers=basic(world.token))).status_code == 200


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "Basic"])
async def test_c1_2_both_schemes_carry_the_token(api: Api, world: World, scheme: str) -> None:
    headers = basic(world.token) if scheme == "Basic" else {"Authorization": f"{scheme} {world.token}"}
    answer = await api.client.get("/clusters/demo/status", headers=headers)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "header",
    ["", "Bearer ", "Bearer wrong", "Basic ###", "Basic YTo=", "Basic /////w==", "Digest x", "Bearer a\tb"],
)
@pytest.mark.parametrize("path", ["/clusters/demo/status", "/clusters/none/status", "/no/such", "/api/x"])
async def test_c1_2_401_comes_before_404(api: Api, header: str, path: str) -> None:
    answer = await api.client.get(path, headers={"Authorization": header} if header else {})
    assert answer.status_code == 401
    one_line(answer.text)


async def test_an_expired_or_revoked_token_is_refused(api: Api, world: World) -> None:
    for column in ("expires_at", "revoked_at"):
        token = await world.token_for(Role.OWNER)
        assert (await api.as_token(token).get("/operations/")).status_code == 200
        await world.fetch(
            f"UPDATE tokens SET {column} = now() - interval '1 second' "
            "WHERE tenant_id = :t AND principal = 'a owner' RETURNING 1",
            t=world.tenant,
        )
        assert (await api.as_token(token).get("/operations/")).status_code == 401


@pytest.mark.parametrize(
    "headers", [{}, {"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}]
)
async def test_c1_3_json_is_parsed_whatever_the_content_type(api: Api, headers: dict[str, str]) -> None:
    answer = await api.post(CREATE, ONE, **headers)
    assert answer.status_code == 202


async def test_c1_4_reads_answer_200_and_verbs_202(api: Api) -> None:
    assert (await api.post(CREATE, ONE)).status_code == 202
    assert (await api.terminate(ids=[])).status_code == 202
    for path in ("/clusters/demo/nodes", "/clusters/demo/status", "/operations/", "/operations"):
        assert (await api.get(path)).status_code == 200


async def test_c1_5_location_is_the_absolute_address_of_the_operation(api: Api) -> None:
    for answer in (await api.post(CREATE, ONE), await api.terminate(ids=[])):
        operation = answer.json()["operationId"]
        assert answer.headers["location"] == f"http://api.test/operations/{operation}"


async def test_c1_5_location_honours_the_forwarded_host(api: Api) -> None:
    answer = await api.post(
        CREATE, ONE, **{"X-Forwarded-Host": "public.test, inner", "X-Forwarded-Proto": "https"}
    )
    assert answer.headers["location"].startswith("https://public.test/operations/")


async def test_c1_5_a_forwarded_host_that_is_none_is_not_repeated(api: Api) -> None:
    answer = await api.post(CREATE, ONE, **{"X-Forwarded-Host": "a/b?<script>"})
    assert answer.headers["location"].startswith("http://api.test/operations/")


async def test_c1_7_errors_are_one_flat_object_on_one_line(api: Api) -> None:
    answer = await api.create({"count": 0, "nodearray": "gpu"})
    body = one_line(answer.text)
    assert set(body) == {"Exception", "Message", "Detail", "code", "requestId", "correlationId"}
    assert all(isinstance(value, str) for value in body.values())
    assert body["correlationId"] == answer.headers["x-correlation-id"]


async def test_c1_8_an_unknown_request_id_has_the_words_that_clients_look_for(api: Api) -> None:
    for unknown in ("nobody", "a%00b", "x" * 300):
        answer = await api.get(f"/clusters/demo/nodes?request_id={unknown}")
        assert answer.status_code == 404
        assert "No operation found for request id" in answer.text


@pytest.mark.parametrize(
    "cluster", ["none", "a%20b", "%E4%BD%A0", "%00", "a%2Fb", "..", "x" * 300, "%ff", "'%20OR%201=1"]
)
async def test_c1_8_an_unknown_cluster_is_404_however_it_is_spelt(api: Api, cluster: str) -> None:
    for path in ("status", "nodes"):
        assert (await api.get(f"/clusters/{cluster}/{path}")).status_code == 404
    assert (await api.post(f"/clusters/{cluster}/nodes/create", ONE)).status_code == 404


async def test_c1_10_nodes_without_a_value_means_true(api: Api) -> None:
    for query, shown in (("", False), ("?nodes", True), ("?nodes=true", True), ("?nodes=false", False)):
        assert ("nodes" in await api.status(query)) is shown
    assert (await api.get("/clusters/demo/status?nodes=perhaps")).status_code == 400


async def test_c1_10_a_slash_too_many_is_never_redirected(api: Api) -> None:
    answer = await api.post(CREATE + "/", ONE)
    assert answer.status_code == 404


async def test_s2_a_missing_permission_is_403_in_the_same_form(api: Api, world: World) -> None:
    viewer = api.as_token(await world.token_for(Role.VIEWER))
    answer = await viewer.post(CREATE, ONE)
    assert answer.status_code == 403
    assert "compute:clusters:operate" in one_line(answer.text)["Message"]
    assert (await viewer.get("/clusters/demo/nodes")).status_code == 200


async def test_s2_another_tenants_cluster_is_404_whatever_the_role(
    api: Api, world: World, database: Database
) -> None:

    other = await make_world(database)
    await other.add_cluster("theirs")
    for role in Role:
        mine = api.as_token(await world.token_for(role))
        assert (await mine.post("/clusters/theirs/nodes/create", ONE)).status_code == 404
        assert (await mine.get("/clusters/theirs/status")).status_code == 404


BAD_BODIES = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"x"',
    b"\xff\xfe",
    b'{"sets": NaN}',
    b'{"sets": "gpu"}',
    b'{"sets": []}',
    b'{"sets": [[]]}',
    b'{"sets": [{"count": 1}]}',
    b'{"sets": [{"nodearray": "gpu"}]}',
    b'{"sets": [{"count": 0, "nodearray": "gpu"}]}',
    b'{"sets": [{"count": -1, "nodearray": "gpu"}]}',
    b'{"sets": [{"count": 1000000000, "nodearray": "gpu"}]}',
    b'{"sets": [{"count": "3", "nodearray": "gpu"}]}',
    b'{"sets": [{"count": true, "nodearray": "gpu"}]}',
    b'{"sets": [{"count": 1.5, "nodearray": "gpu"}]}',
    b'{"sets": [{"count": 1, "nodearray": 7}]}',
    b'{"sets": [{"count": 1, "nodearray": "none"}]}',
    b'{"sets": [{"count": 1, "nodearray": "gpu\\u0000"}]}',
    b'{"sets": [{"count": 1, "nodearray": "\\ud800"}]}',
    b'{"sets": [{"count": 1, "nodearray": "gpu", "nameFormat": "%s"}]}',
    b'{"sets": [{"count": 1, "nodearray": "gpu", "nameFormat": "%d-%d"}]}',
    b'{"sets": [{"count": 1, "nodearray": "gpu", "nameFormat": "%(x)s"}]}',
    b'{"sets": [{"count": 1, "nodearray": "gpu", "nameFormat": "a b"}]}',
    b'{"sets": [{"count": 1, "nodearray": "gpu", "definition": {"machineType": "none"}}]}',
    b'{"sets": [{"count": 1, "nodearray": "gpu", "nodeAttributes": {"KeepAlive": "yes"}}]}',
    b'{"sets": [{"count": 1, "nodearray": "gpu", "nodeAttributes": {"StartAutomatically": false}}]}',
    b'{"sets": [{"count": 1, "nodearray": "gpu"}], "requestId": 7}',
    b'{"sets": [{"count": 1, "nodearray": "gpu"}], "requestId": ""}',
    b'{"sets": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
]


@pytest.mark.parametrize("body", BAD_BODIES, ids=lambda body: body[:60].decode("latin-1"))
async def test_c1_9_a_body_that_makes_no_sense_is_409_and_nothing_is_made(api: Api, body: bytes) -> None:
    answer = await api.post(CREATE, body)
    assert answer.status_code == 409, answer.text
    assert one_line(answer.text)["Message"]
    assert await api.nodes() == []


async def test_a_body_beyond_16_mib_is_413(api: Api) -> None:
    answer = await api.post(CREATE, b'{"sets": "' + b"x" * (16 * 1_048_576) + b'"}')
    assert answer.status_code == 413
    one_line(answer.text)
    fleet = await api.post("/api/compute/sites/list", b'{"x": "' + b"x" * (16 * 1_048_576) + b'"}')
    assert fleet.status_code == 413
    assert fleet.json()["error"]["code"] == "TOO_LARGE"


async def test_with_the_database_down_the_answer_is_503_without_a_trace(world: World) -> None:
    down = Database("postgresql+asyncpg://nobody:x@127.0.0.1:1/none")
    transport = httpx.ASGITransport(create_app(down, ApiSettings()))
    async with httpx.AsyncClient(transport=transport, base_url="http://api.test") as client:
        for path in ("/healthz", "/clusters/demo/nodes", "/operations/"):
            answer = await client.get(path, headers=basic(world.token))
            assert answer.status_code == 503
            assert "Traceback" not in answer.text
        fleet = await client.post("/api/compute/sites/list", json={}, headers=basic(world.token))
        assert fleet.json()["error"]["code"] == "UNAVAILABLE"
    await down.close()


async def test_health_needs_no_token(api: Api) -> None:
    answer = await api.client.get("/healthz")
    assert (answer.status_code, answer.json()["database"]) == (200, "ok")


async def test_openapi_describes_the_bodies_and_both_schemes(api: Api) -> None:
    schema = (await api.client.get("/openapi.json")).json()
    body = schema["paths"]["/clusters/{cluster}/nodes/create"]["post"]["requestBody"]
    assert "sets" in body["content"]["application/json"]["schema"]["properties"]
    assert {"Bearer", "Basic"} == set(schema["components"]["securitySchemes"])
    for reference in re.findall(r"'\$ref': '#/components/schemas/([^']+)'", str(schema)):
        assert reference in schema["components"]["schemas"]
    for path, methods in schema["paths"].items():
        for method in methods.values():
            declared = {each["name"] for each in method.get("parameters", []) if each["in"] == "path"}
            assert declared == set(re.findall(r"{(\w+)}", path)), path
            if path != "/healthz":
                assert {"401", "403", "404", "409", "503"} <= set(method["responses"]), path
    listed = schema["paths"]["/clusters/{cluster}/nodes"]["get"]["parameters"]
    assert {each["name"] for each in listed} == {"cluster", "operation", "request_id"}
    create = schema["paths"]["/clusters/{cluster}/nodes/create"]["post"]
    assert {"202", "413"} <= set(create["responses"])
    assert (
        schema["paths"]["/api/compute/profiles/createVersion"]["post"]["summary"] == "profiles.createVersion"
    )
    page = await api.client.get("/docs")
    assert page.status_code == 200
    # Its scripts and styles come from here: a host without the Internet shows it all the same.
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert loaded
    for path in loaded:
        assert (await api.client.get(path)).status_code == 200
