"""Retries: which runs get another try, where it begins, and why the others are left alone."""

import asyncio
import uuid
from typing import Any

import pytest
from sqlalchemy import select

from database.operations import NewRun
from database.refusals import Refusal, RefusalCode
from database.retrying import Left, RetryFrom
from database.run_ends import end_run
from database.set_requests import SetRequest
from database.steps import StepEnd, begin_step, end_step, store_plan
from database.tables import Machine, Node, Operation, Outbox, Run
from domain.failures import FailureCard, FailureClass
from domain.states import MachineState, NodeStatus, RunState
from domain.unfinished import Unfinished
from profiles.canonical import stable_json
from profiles.checking import parse
from profiles.compiling import compile_plan
from profiles.kinds.base import Phase
from tests.database import decisions as made
from tests.database.scenes import claimed, created, submit, terminating
from tests.database.world import World


async def failed_create(world: World, done: int = 2) -> Run:
    """The run of a node that did some steps and failed at the next one."""
    run, _ = await created(world)
    await made.worked(world, run, done)
    await made.end(world, run, RunState.FAILED, made.card())
    return run


async def test_of_fifty_nodes_the_seven_that_failed_go_on_at_their_fourth_step(world: World) -> None:
    operation_id = await made.created_nodes(world, 50)
    runs = await made.runs_of(world, operation_id)
    failing = [f"gpu-{number}" for number in (3, 4, 11, 20, 33, 49, 50)]
    for name in failing:
        await made.worked(world, runs[name], 3)
        await made.end(world, runs[name], RunState.FAILED, made.card())
    succeeded = (Run.operation_id == operation_id) & (Run.state == RunState.PENDING)
    await world.set(Run, succeeded, state=RunState.SUCCEEDED, claim_token=1)
    done = await made.retry(world, operation_id)
    assert (done.retried, done.left) == (failing, [])
    again = await made.runs_of(world, done.operation_id)
    assert list(again) == failing
    for name, run in again.items():
        before = runs[name]
        assert (run.first_step, run.retry_of, run.state) == (3, before.id, RunState.PENDING)
        assert (run.plan_digest, run.generation) == (made.plan_digest(name), before.generation + 1)
        node = await made.node_of(world, run)
        assert (node.id, node.generation, node.status) == (before.node_id, run.generation, "Acquiring")
        assert made.ACTOR in node.message
        assert node.machine_id
    new = await made.operation(world, done.operation_id)
    assert (new.action, new.state, new.retry_of) == ("create", RunState.PENDING, operation_id)
    assert (new.run_count, new.created_by) == (7, made.ACTOR)
    assert await world.count(Outbox, Outbox.operation_id == done.operation_id) == 1


async def test_from_the_start_means_every_step_with_the_same_plan(world: World) -> None:
    run = await failed_create(world)
    done = await made.retry(world, run.operation_id, begin=RetryFrom.START)
    again = (await made.runs_of(world, done.operation_id))[run.name]
    assert (again.first_step, again.plan_digest) == (0, made.plan_digest(run.name))


async def test_a_run_whose_steps_were_all_done_begins_behind_them(world: World) -> None:
    run, _ = await created(world)
    await made.worked(world, run, 4, failed=False)
    await made.end(world, run, RunState.FAILED, made.card(FailureClass.CONNECT))
    done = await made.retry(world, run.operation_id)
    assert (await made.runs_of(world, done.operation_id))[run.name].first_step == 4


_FAILED, _LOST = made.card(FailureClass.TIMEOUT), made.card(FailureClass.LOST_MACHINE)
_HEALTH = made.card(FailureClass.HEALTH)
# The step ran, and found the machine not as it should be.
_OWN = _HEALTH.model_copy(update={"of_step": True})


@pytest.mark.parametrize(
    ("on_failure", "attempts", "first_step"),
    [
        ("continue", [_FAILED, _FAILED], 3),
        # It has an attempt left, which its profile promises.
        ("continue", [_FAILED], 2),
        ("continue", [_FAILED, _LOST], 2),
        ("continue", [_FAILED, _LOST, _FAILED], 3),
        ("continue", [_OWN, _FAILED], 3),
        ("continue", [_HEALTH, _FAILED], 2),
        ("fail", [_FAILED, _FAILED], 2),
        ("hold", [_FAILED, _FAILED], 2),
    ],
)
async def test_a_step_that_failed_for_good_and_may_be_passed_over_is_not_done_again(
    world: World, on_failure: str, attempts: list[FailureCard], first_step: int
) -> None:
    run, node = await created(world)
    await made.worked(world, run, 2, failed=False)
    steps = [{"name": f"s{place}", "uses": "command", "with": {"run": "true"}} for place in range(3)]
    steps[2] |= {"onFailure": on_failure, "retry": {"attempts": 2}}
    content = parse({"schema": 1, "steps": steps})
    plan = stable_json(
        compile_plan(
            content, profile="p@1", content_digest=made.digest_of(""), phase=Phase.CREATE, hostname=None
        )
    )
    async with world.database.begin() as session:
        await store_plan(session, run.id, made.digest_of(plan), plan)
        for attempt, failure in enumerate(attempts, 1):
            step = await begin_step(
                session,
                run_id=run.id,
                position=2,
                attempt=attempt,
                name="s2",
                uses="command",
                machine=node.machine_id or "",
            )
            await end_step(session, step, StepEnd(RunState.FAILED, card=failure))
    await made.end(world, run, RunState.FAILED, made.card(FailureClass.CONNECT))
    done = await made.retry(world, run.operation_id)
    assert (await made.runs_of(world, done.operation_id))[run.name].first_step == first_step


async def test_a_retry_that_did_nothing_hands_its_place_on_to_the_next(world: World) -> None:
    run = await failed_create(world, done=2)
    first = await made.retry(world, run.operation_id)
    again = (await made.runs_of(world, first.operation_id))[run.name]
    await made.cancel(world, first.operation_id)
    second = await made.retry(world, first.operation_id)
    last = (await made.runs_of(world, second.operation_id))[run.name]
    assert (last.first_step, last.retry_of, last.plan_digest) == (2, again.id, made.plan_digest(run.name))


class TestKinds:
    """One operation with a run of each kind."""

    NAMES = {  # noqa: RUF012  # read only
        Unfinished.FAILED: "gpu-1",
        Unfinished.UNREACHABLE: "gpu-2",
        Unfinished.CANCELED: "gpu-3",
        Unfinished.NOT_STARTED: "gpu-4",
    }

    async def ended(self, world: World) -> uuid.UUID:
        """gpu-5 has succeeded and gpu-6 still runs."""
        operation_id = await made.created_nodes(world, 6)
        runs = await made.runs_of(world, operation_id)
        for name in ("gpu-1", "gpu-2", "gpu-3", "gpu-6"):
            await claimed(world, runs[name].id)
        await made.end(world, runs["gpu-1"], RunState.FAILED, made.card())
        await made.end(world, runs["gpu-2"], RunState.FAILED, made.card(FailureClass.LOST_MACHINE))
        await made.cancel(world, operation_id, ["gpu-3", "gpu-4"])
        await made.end(world, runs["gpu-3"], RunState.CANCELED, made.card(FailureClass.CANCELLED))
        await world.set(Run, Run.id == runs["gpu-5"].id, state=RunState.SUCCEEDED, claim_token=1)
        return operation_id

    @pytest.mark.parametrize("kind", Unfinished)
    async def test_each_kind_is_chosen_by_its_name(self, world: World, kind: Unfinished) -> None:
        done = await made.retry(world, await self.ended(world), only={kind})
        assert done.retried == [self.NAMES[kind]]
        reasons = {left.name: left.reason for left in done.left}
        others = {name: other for other, name in self.NAMES.items() if other is not kind}
        for name, other in others.items():
            assert reasons.pop(name) == f"its run is {other}, which is not asked for"
        assert reasons == {"gpu-6": "its run is running"}

    async def test_without_a_choice_all_that_did_not_succeed_are_meant(self, world: World) -> None:
        done = await made.retry(world, await self.ended(world))
        assert done.retried == ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]
        assert done.left == [Left("gpu-6", "its run is running")]

    async def test_names_and_kinds_both_bound_it_and_every_named_one_is_accounted_for(
        self, world: World
    ) -> None:
        operation_id = await self.ended(world)
        names = ["gpu-5", "gpu-2", "gpu-1"]
        done = await made.retry(world, operation_id, only={Unfinished.UNREACHABLE}, names=names)
        assert done.retried == ["gpu-2"]
        assert done.left == [
            Left("gpu-1", "its run is failed, which is not asked for"),
            Left("gpu-5", "its run succeeded"),
        ]


async def test_an_unreachable_node_is_unavailable_and_a_retry_brings_it_back(world: World) -> None:
    run, _ = await created(world)
    await claimed(world, run.id)
    await made.end(world, run, RunState.FAILED, made.card(FailureClass.CONNECT, "no answer"))
    lost = await made.node_of(world, run)
    assert (lost.status, lost.card is not None) == (NodeStatus.UNAVAILABLE, True)
    done = await made.retry(world, run.operation_id)
    back = await made.node_of(world, run)
    assert (back.status, back.card) == (NodeStatus.ACQUIRING, None)
    assert await claimed(world, (await made.runs_of(world, done.operation_id))[run.name].id) == 2


async def test_a_second_retry_says_why_nothing_is_left(world: World) -> None:
    run = await failed_create(world)
    await made.retry(world, run.operation_id)
    with pytest.raises(Refusal) as refused:
        await made.retry(world, run.operation_id)
    assert refused.value.code is RefusalCode.INVALID_STATE
    assert refused.value.message == (
        f"there is nothing to retry: {run.name}: the node has moved on since: it is Acquiring"
    )
    assert await world.count(Operation, Operation.retry_of == run.operation_id) == 1


async def test_of_retries_at_once_one_wins(world: World) -> None:
    run = await failed_create(world)
    results = await asyncio.gather(
        *(made.retry(world, run.operation_id) for _ in range(6)), return_exceptions=True
    )
    refused = [result for result in results if isinstance(result, Refusal)]
    assert [one.code for one in refused] == [RefusalCode.INVALID_STATE] * 5
    assert await world.count(Run, Run.retry_of == run.id) == 1
    assert (await made.node_of(world, run)).generation == run.generation + 1


async def test_a_request_id_is_taken_once_and_a_refusal_does_not_burn_it(world: World) -> None:
    run = await failed_create(world)
    with pytest.raises(Refusal, match="nothing to retry"):
        await made.retry(world, run.operation_id, only={Unfinished.CANCELED}, request_id="r")
    done = await made.retry(world, run.operation_id, request_id="r")
    with pytest.raises(Refusal) as refused:
        await made.retry(world, run.operation_id, request_id="r")
    assert (refused.value.code, refused.value.operation_id) == (RefusalCode.CONFLICT, done.operation_id)
    assert (await made.operation(world, done.operation_id)).request_id == "r"


async def test_a_node_that_is_being_terminated_is_left_with_its_reason(world: World) -> None:
    operation_id = await made.created_nodes(world, 2)
    for run in (await made.runs_of(world, operation_id)).values():
        await claimed(world, run.id)
        await made.end(world, run, RunState.FAILED, made.card())
    gone = (await made.runs_of(world, operation_id))["gpu-1"]
    await terminating(world, await made.node_of(world, gone))
    done = await made.retry(world, operation_id)
    assert done.retried == ["gpu-2"]
    assert done.left == [Left("gpu-1", "the node has moved on since: it is Terminating")]
    assert (await made.node_of(world, gone)).status == NodeStatus.TERMINATING


async def test_a_terminate_cannot_be_retried(world: World) -> None:
    _, node = await created(world)
    run = await world.one(select(Run).where(Run.id == await terminating(world, node)))
    with pytest.raises(Refusal, match="a terminate cannot be retried; create, join, clean can"):
        await made.retry(world, run.operation_id)


async def test_unknown_names_are_refused_and_nothing_is_retried(world: World) -> None:
    run = await failed_create(world)
    with pytest.raises(Refusal) as refused:
        await made.retry(world, run.operation_id, names=[run.name, "nope"])
    assert refused.value.code is RefusalCode.INVALID_INPUT
    assert [detail.path for detail in refused.value.details] == ["names[1]"]
    assert (await made.node_of(world, run)).status == NodeStatus.FAILED


class TestMachines:
    """Joins and clean-ups of machines."""

    async def failed(self, world: World, action: str, machine: str | None = None, **values: Any) -> Run:
        """The run of a join or clean that failed, and took its machine to `failed` with it."""
        before = MachineState.VERIFYING if action == "join" else MachineState.CLEANING
        if machine is None:
            (machine,) = await world.machines(1, state=before, **values)
        else:
            await world.set(Machine, Machine.id == machine, state=before)
        run_id = await submit(world, NewRun("m-1", 1, machine_id=machine), action=action)
        run = await world.one(select(Run).where(Run.id == run_id))
        await made.worked(world, run, 1)
        await made.end(world, run, RunState.FAILED, made.card())
        return run

    @pytest.mark.parametrize(
        ("action", "state"), [("join", MachineState.JOINING), ("clean", MachineState.CLEANING)]
    )
    async def test_the_machine_is_on_its_way_again(
        self, world: World, action: str, state: MachineState
    ) -> None:
        run = await self.failed(world, action)
        done = await made.retry(world, run.operation_id)
        assert done.retried == ["m-1"]
        again = (await made.runs_of(world, done.operation_id))["m-1"]
        assert (again.kind, again.machine_id, again.first_step) == ("machine", run.machine_id, 1)
        machine = await world.one(select(Machine).where(Machine.id == run.machine_id))
        assert machine.state == state
        assert machine.state_deadline is not None
        assert await claimed(world, again.id) == 2

    async def test_a_second_retry_is_refused_while_the_first_runs_and_after_it_failed(
        self, world: World
    ) -> None:
        run = await self.failed(world, "join")
        done = await made.retry(world, run.operation_id)
        with pytest.raises(Refusal, match="worked on since: it is joining"):
            await made.retry(world, run.operation_id)
        again = (await made.runs_of(world, done.operation_id))["m-1"]
        async with world.database.begin() as session:
            await end_run(session, again.id, RunState.FAILED, made.card())
        with pytest.raises(Refusal, match="worked on since: it is failed"):
            await made.retry(world, run.operation_id)
        assert (await made.retry(world, done.operation_id)).retried == ["m-1"]

    async def test_an_old_join_does_not_bring_back_a_machine_that_failed_to_be_cleaned(
        self, world: World
    ) -> None:
        join = await self.failed(world, "join")
        await self.failed(world, "clean", join.machine_id)
        with pytest.raises(Refusal, match="worked on since: it is failed"):
            await made.retry(world, join.operation_id)
        machine = await world.one(select(Machine).where(Machine.id == join.machine_id))
        assert machine.state == MachineState.FAILED

    async def test_an_old_join_does_not_bring_back_a_machine_that_a_node_left_dirty(
        self, world: World
    ) -> None:
        join = await self.failed(world, "join")
        await world.set(Machine, Machine.id == join.machine_id, state=MachineState.READY)
        await world.create([SetRequest("gpu", 1)])
        node = await world.one(select(Node).where(Node.machine_id == join.machine_id))
        leaving = await world.one(select(Run).where(Run.id == await terminating(world, node)))
        await claimed(world, leaving.id)
        await made.end(world, leaving, RunState.FAILED, made.card())
        machine = await world.one(select(Machine).where(Machine.id == join.machine_id))
        assert machine.state == MachineState.FAILED
        assert await world.count(Operation, Operation.machine_id == machine.id) == 0
        with pytest.raises(Refusal, match="worked on since: it is failed"):
            await made.retry(world, join.operation_id)
