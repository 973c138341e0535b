"""Cancel, retry, resume and abort over HTTP: what is answered, what is refused, and how."""

import uuid
from typing import Any

import pytest

from database.operation_queries import find_operation, progress_of
from database.steps import StepEnd, begin_step, end_step
from database.tables import Node, Operation, Run
from domain.failures import FailureClass
from domain.permissions import Permission, Role, role_allows
from domain.states import RunState
from domain.unfinished import UNREACHABLE_CLASSES, Unfinished, unfinished
from tests.api.client import Api, basic, fleet_error, paths
from tests.database import decisions as made
from tests.database.scenes import claimed, created, terminating
from tests.database.world import World, one_line

DECISIONS = ("cancel", "retry", "resume", "abort")


def cancel_path(operation_id: uuid.UUID) -> str:
    """Where the cluster API ends an operation."""
    return f"/operations/{operation_id}/cancel"


async def shown(api: Api, operation_id: object) -> dict[str, Any]:
    """The operation as it is polled."""
    answer = await api.get(f"/operations/{operation_id}")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


class TestClusterCancel:
    @pytest.mark.parametrize("body", [b"", b"{}", b'{"names": null}'])
    async def test_it_answers_202_with_location_and_record_whatever_says_all_of_it(
        self, api: Api, world: World, body: bytes
    ) -> None:
        operation_id = await made.created_nodes(world, 2)
        answer = await api.client.post(cancel_path(operation_id), content=body, headers=basic(world.token))
        assert answer.status_code == 202, answer.text
        assert answer.headers["location"] == f"http://api.test/operations/{operation_id}"
        record = one_line(answer.text)
        assert (record["state"], record["canceledBy"]) == ("canceling", "tester")
        assert record["counts"] == {"canceled": 2}
        assert all(run["canceledBy"] == "tester" for run in record["progress"])
        assert all("before it had begun by tester" in run["message"] for run in record["progress"])
        assert record == await shown(api, operation_id)

    async def test_names_mean_these_nodes_only(self, api: Api, world: World) -> None:
        operation_id = await made.created_nodes(world, 3)
        answer = await api.post(cancel_path(operation_id), {"names": ["gpu-2"]})
        assert answer.status_code == 202
        assert (answer.json()["state"], answer.json()["canceledBy"]) == ("pending", None)
        states = {run["name"]: run["state"] for run in answer.json()["progress"]}
        assert states == {"gpu-1": "pending", "gpu-2": "canceled", "gpu-3": "pending"}

    async def test_asked_again_it_answers_the_same_while_it_ends_and_once_it_has(
        self, api: Api, world: World
    ) -> None:
        operation_id = await made.created_nodes(world, 1)
        first = await api.post(cancel_path(operation_id), b"")
        second = await api.post(cancel_path(operation_id), b"")
        assert (first.status_code, second.status_code) == (202, 202)
        assert first.json() == second.json()
        await made.close(world, operation_id)
        third = await api.post(cancel_path(operation_id), b"")
        assert (third.status_code, third.json()["state"]) == (202, "canceled")

    async def test_what_cannot_be_cancelled_is_409_and_says_why(self, api: Api, world: World) -> None:
        run, node = await created(world)
        run_id = await terminating(world, node)
        terminate = await world.fetch("SELECT operation_id FROM runs WHERE id = :id", id=run_id)
        await world.set(Run, Run.id == run.id, state=RunState.SUCCEEDED)
        await made.close(world, run.operation_id)
        for operation_id, said in (
            (terminate, "a terminate cannot be cancelled"),
            (run.operation_id, "the operation has already ended: succeeded"),
        ):
            answer = await api.post(cancel_path(operation_id), b"")
            assert answer.status_code == 409
            body = one_line(answer.text)
            assert body["code"] == "INVALID_STATE"
            assert said in body["Message"]

    @pytest.mark.parametrize("operation", [str(uuid.UUID(int=0)), "nonsense", "%00", "x" * 300])
    async def test_an_unknown_operation_is_404(self, api: Api, operation: str) -> None:
        answer = await api.post(f"/operations/{operation}/cancel", b"")
        assert answer.status_code == 404
        assert one_line(answer.text)["code"] == "NOT_FOUND"

    @pytest.mark.parametrize(
        "body",
        [
            b"{",
            b"[]",
            b"null",
            b"\xff",
            b'{"name": ["gpu-1"]}',
            b'{"names": ["gpu-1"], "other": 1}',
            b'{"names": []}',
            b'{"names": "gpu-1"}',
            b'{"names": [1]}',
            b'{"names": [""]}',
            b'{"names": ["gpu-1", "nope"]}',
            b'{"names": ["gpu-1\\u0000"]}',
            b'{"names": ["\\ud800"]}',
            b'{"names": ["' + b"x" * 64 + b'"]}',
            b'{"names": [' + b'"a",' * 1_000 + b'"a"]}',
        ],
        ids=lambda body: body[:40].decode("latin-1"),
    )
    async def test_a_body_that_makes_no_sense_is_409_and_nothing_ends(
        self, api: Api, world: World, body: bytes
    ) -> None:
        operation_id = await made.created_nodes(world, 1)
        answer = await api.post(cancel_path(operation_id), body)
        assert answer.status_code == 409, answer.text
        assert one_line(answer.text)["code"] == "INVALID_INPUT"
        assert (await shown(api, operation_id))["counts"] == {"pending": 1}

    async def test_each_role_is_answered_by_its_permission(self, api: Api, world: World) -> None:
        for role in Role:
            operation_id = await made.created_nodes(world, 1)
            mine = api.as_token(await world.token_for(role))
            answer = await mine.post(cancel_path(operation_id), b"")
            allowed = role_allows(role, Permission.CLUSTERS_OPERATE)
            assert answer.status_code == (202 if allowed else 403), role


class TestFleetDecisions:
    async def test_a_cancel_answers_the_operation_and_whom_it_concerns(self, api: Api, world: World) -> None:
        operation_id = await made.created_nodes(world, 3)
        answer = await api.fleet("operations.cancel", operationId=str(operation_id), names=["gpu-3", "gpu-1"])
        assert answer.status_code == 200, answer.text
        assert answer.json()["names"] == ["gpu-1", "gpu-3"]
        got = await api.fleet("operations.get", operationId=str(operation_id))
        assert answer.json()["operation"] == got.json()["operation"]
        assert got.json()["operation"]["counts"] == {"canceled": 2, "pending": 1}

    @pytest.mark.parametrize("decision", ["resume", "abort"])
    async def test_held_runs_are_decided_about_by_name_or_all(
        self, api: Api, world: World, decision: str
    ) -> None:
        operation_id = await made.held_create(world, 2)
        assert (await shown(api, operation_id))["state"] == "held"
        for names in (["gpu-1"], None):
            answer = await api.fleet(f"operations.{decision}", operationId=str(operation_id), names=names)
            if names:
                assert (answer.status_code, answer.json()["names"]) == (200, ["gpu-1"])
                assert answer.json()["operation"]["state"] == "running"
            else:
                error = fleet_error(answer, 409, "INVALID_STATE")
                assert "no run of it is held" in error["message"]
        refused = await api.fleet(f"operations.{decision}", operationId=str(operation_id), names=["gpu-2"])
        assert "not held: gpu-2 is running" in fleet_error(refused, 409, "INVALID_STATE")["message"]

    async def test_a_retry_answers_its_operation_who_is_retried_and_who_is_left(
        self, api: Api, world: World
    ) -> None:
        operation_id = await made.created_nodes(world, 3)
        runs = await made.runs_of(world, operation_id)
        await made.worked(world, runs["gpu-1"], 2)
        await made.end(world, runs["gpu-1"], RunState.FAILED, made.card())
        await made.cancel(world, operation_id, ["gpu-2"])
        answer = await api.fleet(
            "operations.retry", operationId=str(operation_id), only=["failed"], requestId="again"
        )
        assert answer.status_code == 200, answer.text
        body = answer.json()
        assert body["retried"] == ["gpu-1"]
        assert body["left"] == [
            {"name": "gpu-2", "reason": "its run is not_started, which is not asked for"},
            {"name": "gpu-3", "reason": "its run is pending"},
        ]
        new = await shown(api, body["operationId"])
        assert (new["retryOf"], new["requestId"], new["action"]) == (str(operation_id), "again", "create")
        (run,) = new["progress"]
        assert (run["name"], run["retryOf"], run["firstStep"]) == ("gpu-1", str(runs["gpu-1"].id), 2)
        listed = (await api.get("/operations/?request_id=again")).json()
        assert [one["id"] for one in listed] == [body["operationId"]]

    async def test_from_start_begins_at_the_first_step(self, api: Api, world: World) -> None:
        operation_id = await made.created_nodes(world, 1)
        run = (await made.runs_of(world, operation_id))["gpu-1"]
        await made.worked(world, run, 2)
        await made.end(world, run, RunState.FAILED, made.card())
        answer = await api.fleet("operations.retry", operationId=str(operation_id), **{"from": "start"})
        (again,) = (await shown(api, answer.json()["operationId"]))["progress"]
        assert again["firstStep"] == 0

    async def test_a_used_request_id_is_a_conflict_that_carries_the_first_operation(
        self, api: Api, world: World
    ) -> None:
        operation_id = await made.created_nodes(world, 1)
        await made.cancel(world, operation_id)
        first = await api.fleet("operations.retry", operationId=str(operation_id), requestId="r")
        again = await api.fleet("operations.retry", operationId=str(operation_id), requestId="r")
        error = fleet_error(again, 409, "CONFLICT")
        assert error["operationId"] == first.json()["operationId"]
        assert first.json()["operationId"] in error["message"]
        assert again.headers["location"].endswith(first.json()["operationId"])

    @pytest.mark.parametrize("decision", DECISIONS)
    async def test_input_is_checked_before_the_state_and_the_role_before_the_input(
        self, api: Api, world: World, decision: str
    ) -> None:
        _, node = await created(world)
        run_id = await terminating(world, node)
        terminate = await world.fetch("SELECT operation_id FROM runs WHERE id = :id", id=run_id)
        body = {"operationId": str(terminate), "names": ["nope"]}
        viewer = api.as_token(await world.token_for(Role.VIEWER))
        fleet_error(await viewer.fleet(f"operations.{decision}", **body), 403, "FORBIDDEN")
        error = fleet_error(await api.fleet(f"operations.{decision}", **body), 400, "INVALID_INPUT")
        assert paths(error) == {"names[0]"}
        assert f"there are: {node.name}" in error["message"]
        body.pop("names")
        fleet_error(await api.fleet(f"operations.{decision}", **body), 409, "INVALID_STATE")

    @pytest.mark.parametrize("decision", DECISIONS)
    @pytest.mark.parametrize(
        ("values", "path", "said"),
        [
            ({"names": []}, "names", "1 to 1000 entries"),
            ({"names": ["a"] * 1_001}, "names", "1 to 1000 entries"),
            ({"names": "gpu-1"}, "names", "a list"),
            ({"names": [""]}, "names[0]", "length from 1 to 63"),
            ({"names": ["x" * 64]}, "names[0]", "length from 1 to 63"),
            ({"names": [7]}, "names[0]", "text"),
            ({"names": ["gpu-1", "\u202e"]}, "names[1]", "there are: gpu-1"),
            ({"names": ["\0"]}, "body", "NUL"),
            ({"nmaes": ["gpu-1"]}, "nmaes", "did you mean names?"),
            ({"operationId": "nonsense"}, "operationId", "matching"),
            ({"operationId": 7}, "operationId", "text"),
        ],
    )
    async def test_bad_input_names_the_field_and_what_is_accepted(
        self, api: Api, world: World, decision: str, values: dict[str, Any], path: str, said: str
    ) -> None:
        operation_id = await made.created_nodes(world, 1)
        answer = await api.fleet(f"operations.{decision}", **{"operationId": str(operation_id), **values})
        error = fleet_error(answer, 400, "INVALID_INPUT")
        assert path in paths(error)
        assert said in error["message"]
        assert (await shown(api, operation_id))["counts"] == {"pending": 1}

    @pytest.mark.parametrize(
        ("values", "path", "said"),
        [
            ({"only": []}, "only", "1 to 100 entries"),
            ({"only": "failed"}, "only", "a list"),
            ({"only": ["succeeded"]}, "only[0]", "one of failed, canceled, unreachable, not_started"),
            ({"from": "middle"}, "from", "one of stopped, start"),
            ({"from": 3}, "from", "one of stopped, start"),
            ({"begin": "start"}, "begin", "is not a known field"),
            ({"requestId": ""}, "requestId", "length from 1 to 255"),
            ({"requestId": "x" * 256}, "requestId", "length from 1 to 255"),
            ({"requestId": "\0"}, "body", "NUL"),
        ],
    )
    async def test_bad_input_of_a_retry(
        self, api: Api, world: World, values: dict[str, Any], path: str, said: str
    ) -> None:
        operation_id = await made.created_nodes(world, 1)
        await made.cancel(world, operation_id)
        answer = await api.fleet("operations.retry", operationId=str(operation_id), **values)
        error = fleet_error(answer, 400, "INVALID_INPUT")
        assert path in paths(error)
        assert said in error["message"]
        assert await world.count(Operation, Operation.retry_of == operation_id) == 0


class TestRecords:
    async def test_an_operation_says_in_words_why_it_did_not_succeed(self, api: Api, world: World) -> None:
        operation_id = await made.created_nodes(world, 2)
        assert (await shown(api, operation_id))["reason"] is None
        first = next(iter((await made.runs_of(world, operation_id)).values()))
        await made.end(world, first, RunState.FAILED, made.card(FailureClass.EXIT, "gpu-1 went wrong"))
        await made.cancel(world, operation_id)
        await made.close(world, operation_id)
        record = await shown(api, operation_id)
        assert record["reason"].startswith(
            "cancelled: the create was cancelled by somebody: 1 of its 2 runs was cut short"
        )
        assert record["card"]["failure_class"] == "cancelled"
        assert (await api.get("/operations/")).json()[0]["reason"] == record["reason"]

    async def test_what_was_unreachable_is_counted_apart_and_its_node_says_why(
        self, api: Api, world: World
    ) -> None:
        operation_id = await made.created_nodes(world, 3)
        runs = await made.runs_of(world, operation_id)
        for name, failure in (("gpu-1", FailureClass.EXIT), ("gpu-2", FailureClass.CONNECT)):
            await claimed(world, runs[name].id)
            await made.end(world, runs[name], RunState.FAILED, made.card(failure, f"{name} went wrong"))
        record = await shown(api, operation_id)
        assert record["counts"] == {"failed": 1, "unreachable": 1, "pending": 1}
        unreachable = {run["name"]: (run["state"], run["unreachable"]) for run in record["progress"]}
        assert unreachable == {
            "gpu-1": ("failed", False),
            "gpu-2": ("failed", True),
            "gpu-3": ("pending", False),
        }
        assert (await api.get("/operations/")).json()[0]["counts"] == record["counts"]
        nodes = {node["Name"]: node for node in await api.nodes()}
        assert (nodes["gpu-2"]["Status"], nodes["gpu-1"]["Status"]) == ("Unavailable", "Failed")
        for name in ("gpu-1", "gpu-2"):
            message = next(run["message"] for run in record["progress"] if run["name"] == name)
            assert nodes[name]["StatusMessage"] == message
            assert f"{name} went wrong" in message

    async def test_every_class_is_counted_as_the_domain_says(self, api: Api, world: World) -> None:
        classes = list(FailureClass)
        operation_id = await made.created_nodes(world, 2 * len(classes))
        async with world.database.begin() as session:
            found = await find_operation(session, world.tenant, str(operation_id))
            runs = [one.run for one in await progress_of(session, found.id)]
            for place, run in enumerate(runs):
                run.state = RunState.FAILED
                run.card = made.card(classes[place % len(classes)]).model_dump(mode="json")
                run.claim_token = 1 if place < len(classes) else None
        async with world.database.begin() as session:
            for one in await progress_of(session, operation_id):
                assert one.run.card is not None
                failure = FailureClass(one.run.card["failure_class"])
                kind = unfinished(RunState.FAILED, failure, claimed=one.run.claim_token is not None)
                assert one.unreachable is (kind is Unfinished.UNREACHABLE)
        lost = len(UNREACHABLE_CLASSES)
        counts = (await shown(api, operation_id))["counts"]
        assert counts == {"unreachable": lost, "failed": 2 * len(classes) - lost}

    async def test_what_steps_changed_is_counted_once_a_step_and_added_up(
        self, api: Api, world: World
    ) -> None:
        operation_id = await made.created_nodes(world, 2)
        runs = await made.runs_of(world, operation_id)
        outcomes = {
            "gpu-1": ["changed", "changed", "no-change", "skipped"],
            "gpu-2": ["no-change", "no-change", "no-change"],
        }
        for name, found in outcomes.items():
            await claimed(world, runs[name].id)
            for position, outcome in enumerate(found):
                await ended_step(world, runs[name], position, outcome)
        # An attempt that applied it and then failed makes the step a change, whatever the next one finds.
        await ended_step(world, runs["gpu-2"], 3, "verify-failed", state=RunState.FAILED)
        await ended_step(world, runs["gpu-2"], 3, "no-change", attempt=2)
        record = await shown(api, operation_id)
        assert {run["name"]: run["changes"] for run in record["progress"]} == {
            "gpu-1": {"changed": 2, "no-change": 1, "skipped": 1},
            "gpu-2": {"changed": 1, "no-change": 3, "skipped": 0},
        }
        assert record["changes"] == {"changed": 3, "no-change": 4, "skipped": 1}

    async def test_steps_carry_their_outputs_and_can_be_asked_for_by_name(
        self, api: Api, world: World
    ) -> None:
        operation_id = await made.created_nodes(world, 2)
        for name, run in (await made.runs_of(world, operation_id)).items():
            await claimed(world, run.id)
            await ended_step(world, run, 0, "changed", outputs={"of": name, "n": [1]})
        steps = await api.fleet("operations.steps", operationId=str(operation_id), name="gpu-2")
        assert [(step["name"], step["outputs"]) for step in steps.json()["items"]] == [
            ("gpu-2", {"of": "gpu-2", "n": [1]})
        ]
        every = await api.fleet("operations.steps", operationId=str(operation_id))
        assert len(every.json()["items"]) == 2

    async def test_an_operation_names_its_cluster_or_its_machine(self, api: Api, world: World) -> None:
        await made.created_nodes(world, 1)
        joined = await api.fleet(
            "nodes.join",
            siteId=world.site_id,
            name="rack1-7",
            address=f"{world.tenant}.test",
            port=22,
            keySecret="secret://file/ssh/key",
            machineType="gpu8",
        )
        assert joined.status_code == 200, joined.text
        listed = (await api.fleet("operations.list")).json()["items"]
        assert [(one["action"], one["cluster"], one["machine"]) for one in listed] == [
            ("join", None, "rack1-7"),
            ("create", "demo", None),
        ]

    async def test_a_node_that_is_held_says_so(self, api: Api, world: World) -> None:
        operation_id = await made.held_create(world)
        (node,) = await api.nodes()
        assert node["StatusMessage"].startswith("held: exit: step s3: exited with status 3")
        await api.fleet("operations.resume", operationId=str(operation_id))
        assert (await api.nodes())[0]["StatusMessage"] == "resumed by tester"
        assert await world.count(Node, Node.tenant_id == world.tenant, Node.card.is_not(None)) == 0


async def ended_step(
    world: World,
    run: Run,
    position: int,
    outcome: str,
    *,
    attempt: int = 1,
    state: RunState = RunState.SUCCEEDED,
    outputs: dict[str, Any] | None = None,
) -> None:
    """One attempt of one step that has ended."""
    machine = (await made.node_of(world, run)).machine_id
    assert machine is not None
    async with world.database.begin() as session:
        step = await begin_step(
            session,
            run_id=run.id,
            position=position,
            attempt=attempt,
            name=f"s{position}",
            uses="command",
            machine=machine,
        )
        await end_step(session, step, StepEnd(state, outcome=outcome, outputs=outputs))
