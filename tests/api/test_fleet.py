"""The fleet API's first methods: input, visibility, permissions, idempotency, state."""

import asyncio
from typing import Any

import pytest

from database.set_requests import SetRequest
from database.tables import Atom, Claim, Event, Machine, Operation, Outbox, Pool, Run
from database.unit_of_work import Database
from domain.permissions import Role
from tests.api.client import Api, fleet_error, paths
from tests.database.world import CONTENT, World, make_world

NO_ID = "0" * 26


async def pool(api: Api, world: World, **values: Any) -> dict[str, Any]:
    answer = await api.fleet(
        "pools.create", siteId=world.site_id, **{"class": "metal-host", "gpuModel": "H200", **values}
    )
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()["pool"]
    return made


def joining(world: World, address: str = "10.9.9.9", **values: Any) -> dict[str, Any]:
    return {
        "siteId": world.site_id,
        "address": address,
        "port": 22,
        "keySecret": "secret://file/ssh/key",
        "machineType": "gpu8",
        **values,
    }


def own_address(world: World, number: int = 1) -> str:
    """A host name that no other test uses."""
    return f"m{number}.{world.tenant}.test"


async def join(api: Api, world: World, number: int = 1, **values: Any) -> dict[str, Any]:
    answer = await api.fleet("nodes.join", **joining(world, own_address(world, number), **values))
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


class TestInput:
    async def test_all_problems_come_at_once_with_path_and_accepted_range(
        self, api: Api, world: World
    ) -> None:
        answer = await api.fleet(
            "nodes.join",
            siteId="site_x",
            address="not a host",
            port=0,
            keySecret="secret://file/../etc/shadow",
            machineType="no/slash",
            bmc={"address": "", "colour": 1},
        )
        error = fleet_error(answer, 400, "INVALID_INPUT")
        assert {
            "siteId",
            "address",
            "port",
            "keySecret",
            "machineType",
            "bmc.address",
            "bmc.colour",
        } <= paths(error)
        port = next(detail for detail in error["details"] if detail["path"] == "port")
        assert "a whole number from 1 to 65535" in port["message"]

    async def test_an_unknown_field_is_refused_with_the_nearest_known_one(self, api: Api) -> None:
        error = fleet_error(
            await api.fleet("sites.create", name="a", region="r", regoin="r"), 400, "INVALID_INPUT"
        )
        assert paths(error) == {"regoin"}
        assert "did you mean region?" in error["details"][0]["message"]

    async def test_nested_lists_name_their_index(self, api: Api, world: World) -> None:
        answer = await api.fleet(
            "clusters.create",
            name="c",
            nodeArrays=[{"name": "a", "poolId": world.pool_id, "profile": "x", "maxCount": "3"}, 7],
        )
        assert {"nodeArrays[0].maxCount", "nodeArrays[1]"} <= paths(fleet_error(answer, 400, "INVALID_INPUT"))

    @pytest.mark.parametrize("body", [b"", b"[]", b"{", b"null", b'{"tenantId": "a\\u0000"}', b"\xff"])
    async def test_a_body_that_is_no_object_is_invalid_input(self, api: Api, body: bytes) -> None:
        fleet_error(await api.post("/api/compute/sites/list", body), 400, "INVALID_INPUT")

    @pytest.mark.parametrize("tenant", ["", "x" * 129, "a b", 7, None])
    async def test_b24_tenant_id_has_its_form(self, api: Api, tenant: object) -> None:
        error = fleet_error(await api.fleet("pools.list", tenantId=tenant), 400, "INVALID_INPUT")
        assert paths(error) == {"tenantId"}

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("siteId", "pool_" + NO_ID),  # B27
            ("gpuModel", "H 200"),  # B29
            ("gpuModel", "x" * 33),
            ("class", "metal"),  # B30
            ("sharing", "shared"),  # B31
            ("agent", "other"),  # B33
            ("policy", []),  # B34
            ("idempotencyKey", ""),  # B37
            ("idempotencyKey", "a b"),
        ],
    )
    async def test_b27_to_b37_fields_of_pools_create(
        self, api: Api, world: World, field: str, value: object
    ) -> None:
        body = {"siteId": world.site_id, "class": "metal-host", field: value}
        error = fleet_error(await api.fleet("pools.create", **body), 400, "INVALID_INPUT")
        assert paths(error) == {field}

    @pytest.mark.parametrize("quota", [{"gpu": -1}, {"gpu": 2**31}, {"gpu": 1.5}, {"gpu": "1"}, {"1x": 1}])
    async def test_b35_b36_quota_maps(self, api: Api, world: World, quota: dict[str, Any]) -> None:
        answer = await api.fleet(
            "pools.create", siteId=world.site_id, ownerQuota=quota, **{"class": "metal-host"}
        )
        error = fleet_error(answer, 400, "INVALID_INPUT")
        assert all(path.startswith("ownerQuota") for path in paths(error))


class TestTenancy:
    async def test_another_tenant_is_not_found_except_for_the_fleets_admin(
        self, api: Api, world: World, database: Database
    ) -> None:
        other = await make_world(database)
        for role in Role:
            mine = api.as_token(await world.token_for(role))
            answer = await mine.fleet("pools.list", tenantId=other.tenant)
            if role is Role.FLEET_ADMIN:
                assert [found["id"] for found in answer.json()["pools"]] == [other.pool_id]
            else:
                fleet_error(answer, 404, "NOT_FOUND")
        admin = api.as_token(await world.token_for(Role.FLEET_ADMIN))
        fleet_error(await admin.fleet("pools.list", tenantId="nobody"), 404, "NOT_FOUND")

    async def test_what_belongs_to_another_tenant_is_not_found(
        self, api: Api, world: World, database: Database
    ) -> None:
        other = await make_world(database)
        machines = await other.machines(2)
        theirs = (await other.create([SetRequest("gpu", 1)])).operation_id
        for method, values in (
            ("pools.get", {"poolId": other.pool_id}),
            ("sites.get", {"siteId": other.site_id}),
            ("profiles.get", {"profileId": other.profile_id}),
            ("profiles.getVersion", {"profileId": other.profile_id, "number": 1}),
            ("profiles.createVersion", {"profileId": other.profile_id, "content": CONTENT}),
            ("nodes.get", {"nodeId": machines[0]}),
            ("nodes.assignPool", {"poolId": world.pool_id, "nodeIds": machines}),
            ("nodes.assignPool", {"poolId": other.pool_id, "nodeIds": machines}),
            ("nodes.join", joining(other, own_address(other))),
            ("pools.create", {"siteId": other.site_id, "class": "metal-host"}),
            ("clusters.get", {"name": "none"}),
            ("machineTypes.get", {"name": "none"}),
            ("operations.get", {"operationId": "00000000-0000-0000-0000-000000000000"}),
            ("operations.steps", {"operationId": "00000000-0000-0000-0000-000000000000"}),
            ("operations.cancel", {"operationId": str(theirs), "names": ["nobody"]}),
            ("operations.retry", {"operationId": str(theirs), "requestId": "r"}),
            ("operations.resume", {"operationId": str(theirs)}),
            ("operations.abort", {"operationId": str(theirs)}),
            ("operations.logs", {"stepRunId": 2**62}),
        ):
            fleet_error(await api.fleet(method, **values), 404, "NOT_FOUND")

    async def test_a_platform_site_is_made_by_the_fleets_admin_only(self, api: Api, world: World) -> None:
        fleet_error(await api.fleet("sites.create", name="p", region="r", custom=False), 403, "FORBIDDEN")
        admin = api.as_token(await world.token_for(Role.FLEET_ADMIN))
        assert (await admin.fleet("sites.create", name="p", region="r", custom=False)).status_code == 200


class TestPools:
    async def test_b53_to_b61_a_new_pool_has_version_1_its_defaults_and_the_owners_quota(
        self, api: Api, world: World
    ) -> None:
        made = await pool(api, world)
        assert (made["version"], made["sharing"], made["agent"], made["owned"], made["archived"]) == (
            1,
            "exclusive",
            "bcd",
            True,
            False,
        )
        assert made["quotas"] == [{"resource": "gpu", "max": 2_147_483_647, "inUse": 0}]
        assert await world.count(Event, Event.subject == f"pool/{made['id']}") == 1
        assert (await api.fleet("pools.get", poolId=made["id"])).json()["pool"] == made

    async def test_an_empty_quota_map_is_legal_and_grants_nothing(self, api: Api, world: World) -> None:
        assert (await pool(api, world, ownerQuota={}))["quotas"] == []

    @pytest.mark.parametrize(
        ("values", "path"),
        [
            ({"class": "provider"}, "providerAccountId"),  # B58
            ({"class": "provider", "providerAccountId": "pacct_" + NO_ID, "agent": "bcd"}, "agent"),  # B59
            ({"class": "provider", "providerAccountId": "pacct_" + NO_ID}, "providerAccountId"),
            ({"class": "metal-host", "providerAccountId": "pacct_" + NO_ID}, "providerAccountId"),  # B60
            ({"class": "metal-host", "sharing": "mig"}, "sharing"),
            ({"class": "metal-host", "policy": {"singleTenant": True}}, "policy.singleTenant"),
            ({"class": "metal-host", "policy": {"colour": 1}}, "policy.colour"),
        ],
    )
    async def test_what_makes_no_sense_or_is_not_applied_yet_is_invalid_input(
        self, api: Api, world: World, values: dict[str, Any], path: str
    ) -> None:
        answer = await api.fleet("pools.create", siteId=world.site_id, **values)
        assert path in paths(fleet_error(answer, 400, "INVALID_INPUT"))

    async def test_b77_b78_a_retry_returns_the_stored_pool(self, api: Api, world: World) -> None:
        first = await pool(api, world, idempotencyKey="k")
        again = await pool(api, world, idempotencyKey="k", gpuModel="B200", ownerQuota={"gpu": 1})
        assert first == again
        assert len(first["id"]) == 57

    async def test_b79_a_retry_answers_without_a_second_decision(self, api: Api, world: World) -> None:
        first = await pool(api, world, idempotencyKey="k")
        await world.fetch(
            "UPDATE tokens SET role = 'viewer' WHERE tenant_id = :t RETURNING 1", t=world.tenant
        )
        assert (await pool(api, world, idempotencyKey="k")) == first
        fleet_error(
            await api.fleet("pools.create", siteId=world.site_id, **{"class": "metal-host"}),
            403,
            "FORBIDDEN",
        )

    @pytest.mark.parametrize(
        "changed",
        [
            {"class": "vps-host"},  # B81
            {"sharing": "mig"},  # B82
            {"agent": "none"},  # B83
            {"providerAccountId": "pacct_" + NO_ID},  # B84
        ],
    )
    async def test_b81_to_b84_the_same_key_asked_differently_is_a_conflict(
        self, api: Api, world: World, changed: dict[str, Any]
    ) -> None:
        await pool(api, world, idempotencyKey="k")
        body = {"siteId": world.site_id, "class": "metal-host", "idempotencyKey": "k", **changed}
        fleet_error(await api.fleet("pools.create", **body), 409, "CONFLICT")

    async def test_b80_the_same_key_at_another_site_is_a_conflict(self, api: Api, world: World) -> None:
        await pool(api, world, idempotencyKey="k")
        site = (await api.fleet("sites.create", name="second", region="r")).json()["site"]["id"]
        body = {"siteId": site, "class": "metal-host", "idempotencyKey": "k"}
        fleet_error(await api.fleet("pools.create", **body), 409, "CONFLICT")

    async def test_b86_another_caller_with_the_same_key_gets_another_pool(
        self, api: Api, world: World
    ) -> None:
        first = await pool(api, world, idempotencyKey="k")
        other = api.as_token(await world.token_for(Role.OWNER))
        assert (await pool(other, world, idempotencyKey="k"))["id"] != first["id"]

    async def test_racing_creates_with_one_key_make_one_pool_and_one_event(
        self, api: Api, world: World
    ) -> None:
        made = await asyncio.gather(*(pool(api, world, idempotencyKey="race") for _ in range(20)))
        assert len({one["id"] for one in made}) == 1
        assert all(one["quotas"] for one in made)
        assert await world.count(Pool, Pool.tenant_id == world.tenant) == 2
        assert await world.count(Event, Event.subject == f"pool/{made[0]['id']}") == 1


class TestNodes:
    async def test_join_adds_machine_atoms_claim_and_an_operation_with_one_run(
        self, api: Api, world: World
    ) -> None:
        body = await join(api, world)
        node, operation = body["node"], body["operationId"]
        assert (node["state"], node["booked"], node["poolId"]) == ("joining", False, None)
        assert node["stateDeadline"]
        assert await world.count(Atom, Atom.machine_id == node["id"]) == 9
        assert await world.count(Claim, Claim.machine_id == node["id"], Claim.token == 0) == 1
        runs = (Run.operation_id == operation, Run.machine_id == node["id"], Run.generation == 1)
        assert await world.count(Run, *runs, Run.kind == "machine", Run.action == "join") == 1
        assert await world.count(Outbox, Outbox.operation_id == operation) == 1
        assert await world.count(Operation, Operation.machine_id == node["id"]) == 1
        assert (await api.fleet("nodes.get", nodeId=node["id"])).json()["node"] == node

    async def test_an_address_joins_once(self, api: Api, world: World) -> None:
        await join(api, world)
        again = await api.fleet("nodes.join", **joining(world, own_address(world).upper()))
        fleet_error(again, 409, "CONFLICT")
        await join(api, world, port=2222)

    async def test_a_sandbox_is_joined_by_its_controller_where_sandboxes_are_served(
        self, api: Api, world: World
    ) -> None:
        name = f"sandbox://{world.tenant}"
        assert (await join(api, world, bmc={"address": name}))["node"]["bmc"] == {"address": name}
        again = await api.fleet("nodes.join", **joining(world, own_address(world, 2), bmc={"address": name}))
        fleet_error(again, 409, "CONFLICT")

    @pytest.mark.parametrize("address", ["redfish://10.0.0.1", "10.0.0.1", "sandbox://../x", "sandbox://"])
    async def test_a_controller_of_no_served_kind_is_refused(
        self, api: Api, world: World, address: str
    ) -> None:
        answer = await api.fleet("nodes.join", **joining(world, bmc={"address": address}))
        assert paths(fleet_error(answer, 400, "INVALID_INPUT")) == {"bmc.address"}

    @pytest.mark.parametrize(
        "secret",
        [
            "key",
            "secret://vault/x",
            "secret://file/../x",
            "secret://file/a/../b",
            "secret://file//x",
            "secret://file/",
            "secret://file/.ssh",
            "secret://file/a b",
        ],
    )
    async def test_a_key_is_a_reference_to_a_file_below_the_secrets(
        self, api: Api, world: World, secret: str
    ) -> None:
        answer = await api.fleet("nodes.join", **joining(world, keySecret=secret))
        assert paths(fleet_error(answer, 400, "INVALID_INPUT")) == {"keySecret"}

    async def test_an_unknown_machine_type_is_invalid_input(self, api: Api, world: World) -> None:
        answer = await api.fleet("nodes.join", **joining(world, machineType="none"))
        assert paths(fleet_error(answer, 400, "INVALID_INPUT")) == {"machineType"}

    async def test_machines_are_assigned_all_or_none(self, api: Api, world: World) -> None:
        made = await pool(api, world)
        good = [(await join(api, world, n))["node"]["id"] for n in (1, 2)]
        plain = (await join(api, world, 3, machineType="cpu"))["node"]["id"]
        mixed = await api.fleet("nodes.assignPool", poolId=made["id"], nodeIds=[*good, plain])
        assert paths(fleet_error(mixed, 400, "INVALID_INPUT")) == {"nodeIds[2]"}
        assert await world.count(Machine, Machine.pool_id == made["id"]) == 0
        done = await api.fleet("nodes.assignPool", poolId=made["id"], nodeIds=[*good, good[0]])
        assert [(node["id"], node["poolId"]) for node in done.json()["nodes"]] == [
            (machine, made["id"]) for machine in sorted(good)
        ]

    async def test_a_booked_machine_stays_in_its_pool(self, api: Api, world: World) -> None:
        await world.machines(1)
        await api.create({"count": 1, "nodearray": "gpu"})
        machine = await world.fetch("SELECT machine_id FROM nodes WHERE tenant_id = :t", t=world.tenant)
        made = await pool(api, world)
        answer = await api.fleet("nodes.assignPool", poolId=made["id"], nodeIds=[machine])
        fleet_error(answer, 409, "INVALID_STATE")
        same = await api.fleet("nodes.assignPool", poolId=world.pool_id, nodeIds=[machine])
        assert same.json()["nodes"][0]["booked"] is True

    async def test_site_and_gpu_model_must_match(self, api: Api, world: World) -> None:
        site = (await api.fleet("sites.create", name="second", region="r")).json()["site"]["id"]
        elsewhere = await join(api, world, 1, siteId=site)
        plain = await join(api, world, 2, machineType="cpu")
        ids = [elsewhere["node"]["id"], plain["node"]["id"]]
        answer = await api.fleet("nodes.assignPool", poolId=world.pool_id, nodeIds=ids)
        assert paths(fleet_error(answer, 400, "INVALID_INPUT")) == {"nodeIds[0]", "nodeIds[1]"}
        assert await world.count(Machine, Machine.pool_id == world.pool_id) == 0

    async def test_lists_are_filtered_and_come_in_pages(self, api: Api, world: World) -> None:
        for number in range(3):
            await join(api, world, number)
        first = (await api.fleet("nodes.list", limit=2)).json()
        rest = (await api.fleet("nodes.list", limit=2, cursor=first["nextCursor"])).json()
        assert (len(first["items"]), len(rest["items"]), rest["nextCursor"]) == (2, 1, None)
        assert (await api.fleet("nodes.list", state="ready")).json()["items"] == []
        assert (await api.fleet("nodes.list", poolId=world.pool_id)).json()["items"] == []
        fleet_error(await api.fleet("nodes.list", state="happy"), 400, "INVALID_INPUT")


class TestProfiles:
    async def test_a_profile_is_made_from_an_object_or_from_text(self, api: Api, world: World) -> None:
        yaml = "schema: 1\nsteps:\n  - name: hello\n    uses: command\n    with: {run: 'true'}\n"
        digests = []
        for name, content in (("one", CONTENT), ("two", yaml)):
            answer = await api.fleet("profiles.create", name=name, content=content)
            assert answer.status_code == 200, answer.text
            made = answer.json()["profile"]
            assert (made["latestVersion"], made["ref"]) == (1, f"{world.tenant}/{name}@1")
            digests.append(made["versions"][0]["digest"])
        assert digests[0] == digests[1]

    async def test_all_problems_of_the_content_come_at_once_with_lines(self, api: Api) -> None:
        yaml = "schema: 1\nsteps:\n  - name: Bad Name\n    uses: nothing\n    with: {}\n"
        error = fleet_error(await api.fleet("profiles.create", name="x", content=yaml), 400, "INVALID_INPUT")
        assert {"content.steps[0].name", "content.steps[0].uses"} <= paths(error)
        assert any("line 3" in detail["message"] for detail in error["details"])

    async def test_a_name_is_taken_once_and_a_retry_by_key_is_the_same(self, api: Api) -> None:
        first = await api.fleet("profiles.create", name="a", content=CONTENT, idempotencyKey="k")
        again = await api.fleet("profiles.create", name="a", content=CONTENT, idempotencyKey="k")
        assert first.json() == again.json()
        fleet_error(await api.fleet("profiles.create", name="a", content=CONTENT), 409, "CONFLICT")
        other = await api.fleet("profiles.create", name="b", content=CONTENT, idempotencyKey="k")
        fleet_error(other, 409, "CONFLICT")

    async def test_b147_b148_a_version_changes_until_its_first_use(self, api: Api, world: World) -> None:
        step = {"name": "hello", "uses": "command", "with": {"run": "echo other"}}
        change = {"profileId": world.profile_id, "number": 1, "content": {"schema": 1, "steps": [step]}}
        assert (await api.fleet("profiles.updateVersion", **change)).status_code == 200
        await world.machines(1)
        await api.create({"count": 1, "nodearray": "gpu"})
        fleet_error(await api.fleet("profiles.updateVersion", **change), 409, "INVALID_STATE")
        used = await api.fleet("profiles.getVersion", profileId=world.profile_id, number=1)
        assert used.json()["version"]["usedAt"]
        assert used.json()["version"]["content"]["steps"][0]["with"]["run"] == "echo other"
        missing = await api.fleet("profiles.getVersion", profileId=world.profile_id, number=9)
        fleet_error(missing, 404, "NOT_FOUND")

    async def test_versions_count_up_and_a_stale_base_is_a_conflict(self, api: Api, world: World) -> None:
        body = {"profileId": world.profile_id, "content": CONTENT, "baseVersion": 1}
        assert (await api.fleet("profiles.createVersion", **body)).json()["version"]["number"] == 2
        fleet_error(await api.fleet("profiles.createVersion", **body), 409, "CONFLICT")

    async def test_b149_public_profiles_are_seen_by_others_but_only_the_owner_writes(
        self, api: Api, world: World, database: Database
    ) -> None:
        made = await api.fleet("profiles.create", name="pub", content=CONTENT, visibility="public")
        profile_id = made.json()["profile"]["id"]
        other = await make_world(database)
        theirs = Api(api.client, other.token, other.tenant)
        assert (await theirs.fleet("profiles.get", profileId=profile_id)).status_code == 200
        change = {"profileId": profile_id, "number": 1, "content": CONTENT}
        fleet_error(await theirs.fleet("profiles.updateVersion", **change), 404, "NOT_FOUND")


class TestClusters:
    async def test_a_cluster_is_made_read_and_listed(self, api: Api, world: World) -> None:
        array = {"name": "gpu", "poolId": world.pool_id, "profile": world.profile, "maxCount": 4}
        made = await api.fleet("clusters.create", name="C.1_x", nodeArrays=[array])
        assert made.status_code == 200, made.text
        assert made.json()["cluster"]["nodeArrays"][0]["maxCount"] == 4
        assert (await api.fleet("clusters.get", name="C.1_x")).json() == made.json()
        names = [one["name"] for one in (await api.fleet("clusters.list")).json()["items"]]
        assert names == ["C.1_x", "demo"]
        again = await api.fleet("clusters.create", name="C.1_x", nodeArrays=[array])
        fleet_error(again, 409, "CONFLICT")

    @pytest.mark.parametrize(
        ("change", "status", "code", "path"),
        [
            ({"poolId": "pool_" + NO_ID}, 404, "NOT_FOUND", "nodeArrays[0].poolId"),
            ({"profile": "builtin/none@1"}, 404, "NOT_FOUND", "nodeArrays[0].profile"),
            ({"profile": "x/y@latest"}, 400, "INVALID_INPUT", "nodeArrays[0].profile"),
            ({"machineTypes": ["gpu8", "none"]}, 400, "INVALID_INPUT", "nodeArrays[0].machineTypes[1]"),
            ({"parameters": {"a": 1}}, 400, "INVALID_INPUT", "nodeArrays[0].parameters"),
        ],
    )
    async def test_an_array_over_what_is_not_there_is_refused(
        self, api: Api, world: World, change: dict[str, Any], status: int, code: str, path: str
    ) -> None:
        array = {"name": "gpu", "poolId": world.pool_id, "profile": world.profile, **change}
        answer = await api.fleet("clusters.create", name="bad", nodeArrays=[array])
        assert path in paths(fleet_error(answer, status, code))
        fleet_error(await api.fleet("clusters.get", name="bad"), 404, "NOT_FOUND")

    async def test_fixed_nodes_are_refused_in_so_many_words(self, api: Api) -> None:
        answer = await api.fleet("clusters.create", name="f", nodeArrays=[], nodes=[{"name": "head"}])
        assert "fixed nodes are not served" in fleet_error(answer, 400, "INVALID_INPUT")["message"]


class TestOperations:
    async def test_operations_are_listed_newest_first_in_pages(self, api: Api, world: World) -> None:
        ids = [(await api.terminate(ids=[])).json()["operationId"] for _ in range(3)]
        first = (await api.fleet("operations.list", limit=2)).json()
        rest = (await api.fleet("operations.list", limit=2, cursor=first["nextCursor"])).json()
        listed = [one["id"] for one in first["items"] + rest["items"]]
        assert (listed, rest["nextCursor"]) == (ids[::-1], None)
        assert len((await api.fleet("operations.list", cluster="demo")).json()["items"]) == 3
        assert (await api.fleet("operations.list", state="failed")).json()["items"] == []

    async def test_an_operation_shows_its_runs(self, api: Api, world: World) -> None:
        operation = (await join(api, world, name="m-1"))["operationId"]
        shown = (await api.fleet("operations.get", operationId=operation)).json()["operation"]
        assert (shown["action"], shown["state"], shown["progress"][0]["name"]) == ("join", "pending", "m-1")
        steps = (await api.fleet("operations.steps", operationId=operation)).json()
        assert steps == {"items": [], "nextCursor": None}
