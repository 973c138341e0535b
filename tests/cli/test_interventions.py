"""Cancel, retry, resume, abort through the commands, and what watching says of work that waits."""

import asyncio
import signal
import uuid

import pytest

from cli.advice import advice
from cli.progress import changes, exit_code, headline, node_rows, remarks
from database.tables import Run
from domain.failures import FailureClass
from domain.states import RunState
from tests.cli.conftest import WITHIN, Cli, finish
from tests.database import decisions as made
from tests.database.scenes import claimed
from tests.database.world import World

VERBS = ("cancel", "retry", "resume", "abort")


async def state_of(cli: Cli, operation_id: object) -> str:
    """The operation's state as the commands show it."""
    shown = await cli.run("operations", "show", str(operation_id), "-o", "json")
    return str(shown.json()["state"])


class TestCancel:
    async def test_it_says_what_ends_and_how_to_watch_it(self, cli: Cli, world: World) -> None:
        operation_id = await made.created_nodes(world, 2)
        done = await cli.run("operations", "cancel", str(operation_id))
        assert done.status == 0
        assert done.text.splitlines() == [
            f"operation {operation_id}: cancel of gpu-1, gpu-2",
            f"watch it with: bringup operations watch {operation_id}",
        ]
        assert await state_of(cli, operation_id) == "canceling"
        again = await cli.run("operations", "cancel", str(operation_id))
        assert again.status == 0
        assert "nothing is left to cancel; it is canceling" in again.text

    async def test_of_some_nodes_the_others_go_on_and_what_had_ended_is_said(
        self, cli: Cli, world: World
    ) -> None:
        operation_id = await made.created_nodes(world, 3)
        runs = await made.runs_of(world, operation_id)
        await made.end(world, runs["gpu-1"], RunState.FAILED, made.card())
        done = await cli.run(
            *("operations", "cancel", str(operation_id), "--node", "gpu-1", "--node", "gpu-2", "-o", "json")
        )
        assert done.status == 3
        assert done.json()["names"] == ["gpu-2"]
        assert done.errors == "gpu-1: what was to be cancelled has already ended\n"
        assert (await made.states_of(world, operation_id))["gpu-3"] == RunState.PENDING

    async def test_waiting_ends_with_1_once_it_is_canceled(self, cli: Cli, world: World) -> None:
        operation_id = await made.created_nodes(world, 1)
        process = await cli.start("operations", "cancel", str(operation_id), "--wait")
        assert process.stdout is not None
        first = (await asyncio.wait_for(process.stdout.readline(), WITHIN)).decode()
        assert first == f"operation {operation_id}: cancel of gpu-1\n"
        await made.close(world, operation_id)
        done = await finish(process)
        assert done.status == 1
        assert f"create {operation_id}: canceled, 1 of 1 done" in done.text


class TestRetry:
    async def failed(self, world: World) -> uuid.UUID:
        """gpu-1 failed at its third step, gpu-2 was unreachable, gpu-3 cancelled before it began."""
        operation_id = await made.created_nodes(world, 3)
        runs = await made.runs_of(world, operation_id)
        await made.worked(world, runs["gpu-1"], 2)
        await made.end(world, runs["gpu-1"], RunState.FAILED, made.card())
        await claimed(world, runs["gpu-2"].id)
        await made.end(world, runs["gpu-2"], RunState.FAILED, made.card(FailureClass.CONNECT, "no answer"))
        await made.cancel(world, operation_id, ["gpu-3"])
        await made.close(world, operation_id)
        return operation_id

    async def test_the_new_operation_is_named_with_those_it_is_for(self, cli: Cli, world: World) -> None:
        operation_id = await self.failed(world)
        done = await cli.run("operations", "retry", str(operation_id))
        assert (done.status, done.errors) == (0, "")
        first, second = done.text.splitlines()
        new = first.split()[1].rstrip(":")
        assert first == f"operation {new}: retry of gpu-1, gpu-2, gpu-3 of operation {operation_id}"
        assert second == f"watch it with: bringup operations watch {new}"
        runs = await made.runs_of(world, uuid.UUID(new))
        assert [run.first_step for run in runs.values()] == [2, 0, 0]

    async def test_kinds_and_names_bound_it_and_who_is_left_is_said(self, cli: Cli, world: World) -> None:
        operation_id = str(await self.failed(world))
        kinds = ("--only", "unreachable", "--only", "not_started")
        done = await cli.run("operations", "retry", operation_id, *kinds, "-o", "json")
        assert done.status == 0
        assert done.json()["retried"] == ["gpu-2", "gpu-3"]
        assert done.errors == "gpu-1 is left alone: its run is failed, which is not asked for\n"
        named = await cli.run("operations", "retry", operation_id, "--node", "gpu-1", "--node", "gpu-2")
        assert named.status == 3
        assert "retry of gpu-1 of" in named.text
        assert named.errors == "gpu-2 is left alone: the node has moved on since: it is Acquiring\n"

    async def test_from_start_and_a_request_id_are_passed_on(self, cli: Cli, world: World) -> None:
        operation_id = str(await self.failed(world))
        arguments = ("operations", "retry", operation_id, "--node", "gpu-1", "--from-start")
        done = await cli.run(*arguments, "--request-id", "r-1", "-o", "json")
        new = done.json()["operationId"]
        assert (await made.runs_of(world, uuid.UUID(new)))["gpu-1"].first_step == 0
        again = await cli.run(*arguments, "--request-id", "r-1")
        assert again.status == 2
        assert new in again.errors

    async def test_nothing_to_retry_is_refused_with_the_reasons(self, cli: Cli, world: World) -> None:
        operation_id = await made.created_nodes(world, 1)
        done = await cli.run("operations", "retry", str(operation_id))
        assert done.status == 2
        assert done.output == b""
        assert "there is nothing to retry: gpu-1: its run is pending" in done.errors

    async def test_an_unknown_kind_is_a_wrong_command_line(self, cli: Cli) -> None:
        done = await cli.run("operations", "retry", "6f1e", "--only", "sad")
        assert done.status == 2
        assert "unreachable" in done.errors


class TestHeld:
    @pytest.mark.parametrize("verb", ["resume", "abort"])
    async def test_held_nodes_are_decided_about(self, cli: Cli, world: World, verb: str) -> None:
        operation_id = await made.held_create(world, 2)
        wrong = await cli.run("operations", verb, str(operation_id), "--node", "gpu-2")
        assert wrong.status == 2
        assert "not held: gpu-2 is running" in wrong.errors
        done = await cli.run("operations", verb, str(operation_id), "--node", "gpu-1")
        assert done.status == 0
        assert done.text.splitlines()[0] == f"operation {operation_id}: {verb} of gpu-1"
        assert await made.states_of(world, operation_id) == {"gpu-1": "running", "gpu-2": "running"}

    @pytest.mark.parametrize("output", ["table", "json"])
    async def test_watching_says_once_what_it_waits_for_and_goes_on_to_the_end(
        self, cli: Cli, world: World, output: str
    ) -> None:
        operation_id = await made.held_create(world)
        process = await cli.start("operations", "watch", str(operation_id), "-o", output)
        assert process.stderr is not None
        said = (await asyncio.wait_for(process.stderr.readline(), WITHIN)).decode()
        assert said.startswith("held for you to look at: gpu-1; ")
        for verb in ("resume", "abort"):
            assert f"bringup operations {verb} {operation_id} --node gpu-1" in said
        assert said.endswith("; nothing goes on until then\n")
        run = (await made.runs_of(world, operation_id))["gpu-1"]
        await made.end(world, run, RunState.FAILED, made.card())
        await made.close(world, operation_id)
        done = await finish(process)
        assert done.status == 1
        assert "held for you" not in done.errors
        assert f"bringup operations retry {operation_id}" in done.errors

    async def test_show_says_how_to_go_on(self, cli: Cli, world: World) -> None:
        operation_id = await made.held_create(world, 2)
        text = (await cli.run("operations", "show", str(operation_id))).text
        assert "held for you to look at: gpu-1;" in text
        assert "nothing goes on until then" not in text

    async def test_waiting_too_long_for_a_held_node_ends_with_4(self, cli: Cli, world: World) -> None:
        operation_id = await made.held_create(world)
        done = await cli.run("operations", "watch", str(operation_id), "--timeout", "0.1")
        assert done.status == 4
        assert "held for you to look at: gpu-1" in done.errors


async def test_watchs_help_speaks_of_its_own_options_only(lost: Cli) -> None:
    text = (await lost.run("operations", "watch", "--help")).text
    assert "--wait" not in text
    assert "exit status 4" in text


async def test_a_list_names_the_cluster_or_the_machine(cli: Cli, world: World) -> None:
    await made.created_nodes(world, 1)
    (machine,) = await world.machines(1, name="rack1-7", state="cleaning")
    await made.machine_operation(world, machine, "rack1-7", "clean")
    rows = (await cli.run("operations", "list")).text.splitlines()[1:]
    assert [row.split()[1:5] for row in rows] == [
        ["clean", "pending", "rack1-7", "1"],
        ["create", "pending", "demo", "1"],
    ]


async def test_an_unreachable_node_is_not_shown_as_failed(cli: Cli, world: World) -> None:
    operation_id = await made.created_nodes(world, 1)
    run = (await made.runs_of(world, operation_id))["gpu-1"]
    await claimed(world, run.id)
    await made.end(world, run, RunState.FAILED, made.card(FailureClass.CONNECT, "no answer"))
    await made.close(world, operation_id)
    watched = await cli.run("operations", "watch", str(operation_id))
    assert watched.status == 1
    assert watched.text.splitlines()[0].split()[1:3] == ["gpu-1", "unreachable"]
    assert "1 of 1 done" in watched.text
    listed = await cli.run("operations", "list")
    assert "1 unreachable" in listed.text


@pytest.mark.parametrize(
    ("outcome", "said"), [("changed", "2 steps: 2 changed"), ("no-change", "2 steps: nothing changed")]
)
async def test_a_plan_that_changed_nothing_says_so(cli: Cli, world: World, outcome: str, said: str) -> None:
    operation_id = await made.created_nodes(world, 1)
    run = (await made.runs_of(world, operation_id))["gpu-1"]
    await made.worked(world, run, 2, failed=False, outcome=outcome)
    await world.set(Run, Run.id == run.id, state=RunState.SUCCEEDED)
    await made.close(world, operation_id)
    for command in ("show", "watch"):
        done = await cli.run("operations", command, str(operation_id))
        assert done.status == 0
        assert said in done.text


@pytest.mark.parametrize(
    ("counted", "said"),
    [
        ({}, ""),
        ({"changed": 0, "no-change": 0, "skipped": 0}, ""),
        ({"changed": 3, "no-change": 6, "skipped": 0}, "9 steps: 3 changed, 6 no change"),
        ({"changed": 1, "no-change": 0, "skipped": 0}, "1 step: 1 changed"),
        ({"changed": 1, "no-change": 1, "skipped": 2}, "4 steps: 1 changed, 1 no change, 2 skipped"),
        ({"changed": 0, "no-change": 7, "skipped": 2}, "9 steps: nothing changed, 2 skipped"),
    ],
)
def test_what_steps_did_in_words(counted: dict[str, int], said: str) -> None:
    assert changes(counted) == said


@pytest.mark.parametrize(
    ("message", "reason", "runs", "said"),
    [
        ("", None, [], []),
        ("added 1 of 2", None, ["exit: no"], ["added 1 of 2"]),
        ("", "cancelled: by eve", ["cancelled: the run"], ["cancelled: by eve"]),
        ("added 1 of 2", "cancelled: by eve", [], ["added 1 of 2", "cancelled: by eve"]),
        # A node's row says it already.
        ("", "exit: no", ["exit: no", "exit: other"], []),
        ("no machine is free", "capacity: no machine is free", [], ["capacity: no machine is free"]),
    ],
)
def test_what_is_said_of_an_operation_is_said_once(
    message: str, reason: str | None, runs: list[str], said: list[str]
) -> None:
    operation = {"message": message, "reason": reason, "progress": [{"message": text} for text in runs]}
    assert remarks(operation) == said


async def test_a_cancelled_operation_says_by_whom(cli: Cli, world: World) -> None:
    operation_id = await made.created_nodes(world, 2)
    await made.cancel(world, operation_id)
    await made.close(world, operation_id)
    said = f"the create was cancelled by {made.ACTOR}: 2 of its 2 runs were cut short"
    watched = await cli.run("operations", "watch", str(operation_id))
    assert said in watched.errors + watched.text
    listed = await cli.run("operations", "list")
    assert said in " ".join(listed.text.split())


def test_what_cannot_be_proven_is_explained() -> None:
    runs = [{"name": "gpu-1", "state": "cancel_unconfirmed"}, {"name": "gpu-2", "state": "canceling"}]
    operation = {"id": "1", "action": "create", "state": "cancel_unconfirmed", "progress": runs}
    (line,) = advice(operation)
    assert line.startswith("gpu-1: nothing proves yet")


def test_a_terminate_is_not_advised_to_be_retried() -> None:
    runs = [{"name": "gpu-1", "state": "failed"}]
    ended = {"id": "1", "action": "terminate", "state": "failed", "progress": runs}
    assert advice(ended) == []
    assert advice({**ended, "action": "create"}) == [
        "go on where it stopped with: bringup operations retry 1"
    ]
    assert advice({**ended, "action": "create", "state": "succeeded"}) == []


def test_many_held_nodes_are_counted_and_decided_about_together() -> None:
    runs = [{"name": f"gpu-{n}", "state": "held"} for n in range(30)]
    (line,) = advice({"id": "1", "action": "create", "state": "held", "progress": runs})
    assert "and 20 more" in line
    assert "resume 1, or" in line


def test_an_old_answer_without_the_newer_fields_is_shown() -> None:
    operation = {
        **{"id": "1", "action": "create", "state": "failed", "startTime": None},
        "progress": [{"name": "gpu-1", "state": "failed"}],
    }
    assert node_rows(operation)[0][:3] == ["gpu-1", "failed", None]
    assert headline(operation) == "create 1: failed, 1 of 1 done"
    assert exit_code(operation) == 1


async def test_ctrl_c_while_waiting_for_a_cancel_leaves_the_operation_alone(cli: Cli, world: World) -> None:
    operation_id = await made.held_create(world)
    process = await cli.start("operations", "cancel", str(operation_id), "--wait")
    assert process.stdout is not None
    for _ in range(2):
        await asyncio.wait_for(process.stdout.readline(), WITHIN)
    process.send_signal(signal.SIGINT)
    done = await finish(process)
    assert done.status == 130
    assert "stopped watching; the operation goes on" in done.errors
    assert await state_of(cli, operation_id) == "canceling"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nonsense",), "operationId: "),
        ((str(uuid.UUID(int=0)),), "there is no operation"),
    ],
)
async def test_what_is_not_there_is_refused(
    cli: Cli, verb: str, arguments: tuple[str, ...], said: str
) -> None:
    done = await cli.run("operations", verb, *arguments)
    assert done.status == 2
    assert done.output == b""
    assert said in done.errors


@pytest.mark.parametrize("verb", VERBS)
async def test_unknown_nodes_are_named_with_those_that_there_are(cli: Cli, world: World, verb: str) -> None:
    operation_id = await made.created_nodes(world, 1)
    done = await cli.run("operations", verb, str(operation_id), "--node", "gpu-1", "--node", "nope")
    assert done.status == 2
    assert "no run of 'nope'; there are: gpu-1" in done.errors
