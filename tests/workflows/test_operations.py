"""The real workflows on the real time-skipping server; only the activities are scripted."""

import asyncio

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import CancelledError

from domain.failures import FailureClass
from domain.states import RunState
from profiles.kinds.base import OnFailure
from tests.workflows.conftest import Lab
from tests.workflows.fakes import World, fails, step


async def test_a_create_runs_every_step_of_every_node_once_and_in_order(lab: Lab) -> None:
    world = World(names=["gpu-1", "gpu-2", "gpu-3"])
    end = await lab.run(world)
    assert end.state is RunState.SUCCEEDED
    for name in world.names:
        mine = [call for call in world.order if name in call.split()]
        assert mine == [
            f"claim {name}",
            f"ssh {name}",
            f"step {name} 0.1",
            f"step {name} 1.1",
            f"finish {name}",
        ]


async def test_a_replay_after_each_workflow_task_gives_the_same_history(lab: Lab) -> None:
    world = World(names=["gpu-1", "gpu-2"])
    end = await lab.run(world, cached=0)
    assert end.state is RunState.SUCCEEDED
    assert all(count == 1 for key, count in world.calls.items() if key.startswith("step"))


async def test_a_failed_step_fails_its_node_only(lab: Lab) -> None:
    world = World(
        names=["gpu-1", "gpu-2"],
        trouble={"step gpu-1 0.1": lambda _: fails(FailureClass.EXIT, "exited with status 1")},
    )
    end = await lab.run(world)
    assert end.state is RunState.PARTIALLY_SUCCEEDED
    assert world.ends == {"gpu-1": RunState.FAILED, "gpu-2": RunState.SUCCEEDED}
    assert "exit: exited with status 1" in world.cards["gpu-1"]
    assert "step gpu-1 1.1" not in world.calls


async def test_a_step_is_retried_as_its_profile_says_under_a_new_attempt(lab: Lab) -> None:
    world = World(
        steps=[step(0, "one", attempts=3, backoff_seconds=1800)],
        trouble={
            "step gpu-1 0.1": lambda _: fails(FailureClass.EXIT),
            "step gpu-1 0.2": lambda _: fails(FailureClass.TIMEOUT),
        },
    )
    end = await lab.run(world)
    assert end.state is RunState.SUCCEEDED
    assert [call for call in world.order if call.startswith("step")] == [
        "step gpu-1 0.1",
        "step gpu-1 0.2",
        "step gpu-1 0.3",
    ]


async def test_attempts_are_used_up(lab: Lab) -> None:
    world = World(
        steps=[step(0, "one", attempts=2)],
        trouble={
            "step gpu-1 0.1": lambda _: fails(FailureClass.EXIT),
            "step gpu-1 0.2": lambda _: fails(FailureClass.EXIT),
        },
    )
    assert (await lab.run(world)).state is RunState.FAILED
    assert "step gpu-1 0.3" not in world.calls


async def test_a_failure_that_is_not_the_steps_own_is_not_retried_by_the_profile(lab: Lab) -> None:
    world = World(
        steps=[step(0, "one", attempts=5)],
        trouble={"step gpu-1 0.1": lambda _: fails(FailureClass.HOST_KEY)},
    )
    assert (await lab.run(world)).state is RunState.FAILED
    assert "step gpu-1 0.2" not in world.calls
    assert world.cards["gpu-1"].startswith("host-key:")


@pytest.mark.parametrize(("has_check", "state"), [(True, RunState.SUCCEEDED), (False, RunState.FAILED)])
async def test_a_step_lost_with_its_machine_runs_again_only_if_it_has_a_check(
    lab: Lab, has_check: bool, state: RunState
) -> None:
    world = World(
        steps=[step(0, "one", has_check=has_check)],
        trouble={"step gpu-1 0.1": lambda _: fails(FailureClass.LOST_MACHINE)},
    )
    assert (await lab.run(world)).state is state
    assert world.calls["step gpu-1 0.2"] == (1 if has_check else 0)


async def test_a_step_with_on_failure_continue_is_passed_over(lab: Lab) -> None:
    world = World(
        steps=[step(0, "one", on_failure=OnFailure.CONTINUE), step(1, "two")],
        trouble={"step gpu-1 0.1": lambda _: fails(FailureClass.EXIT)},
    )
    assert (await lab.run(world)).state is RunState.SUCCEEDED
    assert world.calls["step gpu-1 1.1"] == 1


async def test_a_machine_that_never_answers_fails_its_node_and_says_so(lab: Lab) -> None:
    world = World(
        trouble={"ssh gpu-1": lambda _: fails(FailureClass.CONNECT, "192.0.2.1:22 refused", retried=True)}
    )
    assert (await lab.run(world)).state is RunState.FAILED
    assert world.calls["ssh gpu-1"] > 50
    assert "192.0.2.1:22 refused" in world.cards["gpu-1"]


async def test_an_error_in_workflow_code_fails_the_node_and_does_not_look_like_progress(lab: Lab) -> None:
    world = World(names=["gpu-1"], unreadable_plan=True)
    assert (await lab.run(world)).state is RunState.FAILED
    assert world.cards["gpu-1"].startswith("internal:")


async def test_a_superseded_run_ends_as_superseded(lab: Lab) -> None:
    world = World(trouble={"claim gpu-1": lambda _: fails(FailureClass.SUPERSEDED)})
    assert (await lab.run(world)).state is RunState.SUPERSEDED


async def test_a_terminate_runs_its_steps_then_hands_the_machine_over(lab: Lab) -> None:
    world = World(action="terminate", steps=[step(0, "wipe")])
    assert (await lab.run(world)).state is RunState.SUCCEEDED
    assert world.order[-3:] == ["step gpu-1 0.1", "hand over gpu-1", "end_operation"]


@pytest.mark.parametrize("where", ["ssh gpu-1", "make_plan", "step gpu-1 0.1"])
async def test_a_terminate_ends_the_node_whatever_happens_on_the_machine(lab: Lab, where: str) -> None:
    world = World(action="terminate", trouble={where: lambda _: fails(FailureClass.AUTH)})
    assert (await lab.run(world)).state is RunState.SUCCEEDED
    assert world.calls["hand over gpu-1"] == 1
    assert world.cards["gpu-1"].startswith("auth:")


async def test_a_terminate_is_held_by_nothing(lab: Lab) -> None:
    world = World(
        action="terminate",
        steps=[step(0, "one", on_failure=OnFailure.HOLD)],
        trouble={"step gpu-1 0.1": lambda _: fails(FailureClass.EXIT)},
    )
    assert (await lab.run(world)).state is RunState.SUCCEEDED
    assert not world.held


async def test_a_terminate_displaces_the_run_that_holds_the_node(lab: Lab) -> None:
    creating = World(block={"step gpu-1 0.1": asyncio.Event()})
    async with lab.worker(creating):
        first = await lab.start(creating)
        await creating.reached("step gpu-1 0.1")
        ending = World(action="terminate", block={"displace": asyncio.Event()})
        ending.subjects = creating.subjects
        other = Lab(lab.environment)
        async with other.worker(ending):
            second = await other.start(ending)
            await ending.reached("displace")
            await lab.environment.client.get_workflow_handle(f"node/{creating.subjects['gpu-1']}").cancel()
            assert (await first.result()).state is RunState.CANCELED
            ending.block["displace"].set()
            assert (await second.result()).state is RunState.SUCCEEDED
    assert creating.ends["gpu-1"] is RunState.CANCELED
    assert ending.calls["hand over gpu-1"] == 1


async def test_a_retry_waits_for_the_run_before_it_and_does_not_stop_it(lab: Lab) -> None:
    creating = World(block={"finish gpu-1": asyncio.Event()})
    async with lab.worker(creating):
        first = await lab.start(creating)
        await creating.reached("finish gpu-1")
        again = World(block={"wait for the other": asyncio.Event()}, first_step=1)
        again.subjects = creating.subjects
        other = Lab(lab.environment)
        async with other.worker(again):
            second = await other.start(again)
            await again.reached("wait for the other")
            creating.block["finish gpu-1"].set()
            assert (await first.result()).state is RunState.SUCCEEDED
            again.block["wait for the other"].set()
            assert (await second.result()).state is RunState.SUCCEEDED
    assert again.calls["displace"] == 0
    assert [call for call in again.order if call.startswith("step")] == ["step gpu-1 1.1"]


async def test_a_cancelled_operation_records_every_node_and_ends_as_cancelled(lab: Lab) -> None:
    names = ["gpu-1", "gpu-2", "gpu-3"]
    world = World(names=names, block={f"step {name} 0.1": asyncio.Event() for name in names})
    async with lab.worker(world):
        handle = await lab.start(world)
        await world.reached(*world.block)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
    assert isinstance(failed.value.cause, CancelledError)
    assert world.ends == dict.fromkeys(names, RunState.CANCELED)
    assert world.order[-1] == "end_operation", "the operation ends after the last of its nodes"
    assert all(world.calls[f"confirm {name}"] == 1 for name in names)


async def test_a_hundred_nodes_that_hang_keep_no_other_of_their_batch_waiting(lab: Lab) -> None:
    names = [f"gpu-{n}" for n in range(1, 121)]
    hung, free = names[:100], names[100:]
    held_up = asyncio.Event()
    world = World(names=names, steps=[step(0, "one")], block={f"step {name} 0.1": held_up for name in hung})
    async with lab.worker(world):
        handle = await lab.start(world)
        await world.reached(*(f"finish {name}" for name in free))
        held_up.set()
        assert (await handle.result()).state is RunState.SUCCEEDED


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("join", ["verify_machine", "end_machine_run"]),
        ("clean", ["reset_machine", "verify_machine", "end_machine_run"]),
    ],
)
async def test_a_machine_becomes_ready_only_after_it_was_verified(
    lab: Lab, action: str, expected: list[str]
) -> None:
    world = World(names=["local-1"], kind="machine", action=action)
    assert (await lab.run(world)).state is RunState.SUCCEEDED
    assert world.order[2:-1] == expected


async def test_a_clean_waits_for_the_machines_earlier_run_and_does_not_stop_it(lab: Lab) -> None:
    earlier = World(
        names=["local-1"], kind="machine", action="clean", block={"end_machine_run": asyncio.Event()}
    )
    async with lab.worker(earlier):
        first = await lab.start(earlier)
        await earlier.reached("end_machine_run")
        later = World(
            names=["local-1"], kind="machine", action="clean", block={"wait for the other": asyncio.Event()}
        )
        later.subjects = earlier.subjects
        other = Lab(lab.environment)
        async with other.worker(later):
            second = await other.start(later)
            await later.reached("wait for the other")
            earlier.block["end_machine_run"].set()
            assert (await first.result()).state is RunState.SUCCEEDED
            later.block["wait for the other"].set()
            assert (await second.result()).state is RunState.SUCCEEDED
    assert later.calls["displace"] == 0


async def test_a_machine_that_cannot_be_cleaned_is_failed_and_never_ready(lab: Lab) -> None:
    world = World(
        names=["local-1"],
        kind="machine",
        action="clean",
        trouble={"reset_machine": lambda _: fails(FailureClass.PRIVILEGE)},
    )
    assert (await lab.run(world)).state is RunState.FAILED
    assert "end_machine_run" not in world.calls
    assert world.ends["local-1"] is RunState.FAILED


@pytest.mark.parametrize("of_step", [True, False, None])
async def test_a_step_that_ran_and_failed_is_its_profiles_whatever_the_class(
    lab: Lab, of_step: bool | None
) -> None:
    """As when a machine has fewer GPUs than the step expects; the same class else is the platform's."""
    world = World(
        steps=[step(0, "one", attempts=2, on_failure=OnFailure.CONTINUE), step(1, "two")],
        trouble={
            f"step gpu-1 0.{attempt}": lambda _: fails(FailureClass.HEALTH, of_step=of_step)
            for attempt in (1, 2)
        },
    )
    ended = await lab.run(world)
    own = of_step is True
    assert ended.state is (RunState.SUCCEEDED if own else RunState.FAILED)
    assert world.calls["step gpu-1 0.2"] == (1 if own else 0)
    assert world.calls["step gpu-1 1.1"] == (1 if own else 0)
