"""When the machine's workflow asks for GPUs, and what follows from the answer."""

from __future__ import annotations

import pytest
from temporalio.testing import WorkflowEnvironment

from domain.failures import FailureClass
from domain.states import RunState
from tests.fixtures.temporal import time_skipping
from tests.workflows.conftest import Lab
from tests.workflows.fakes import World, fails

__all__ = ["time_skipping"]


@pytest.fixture
def lab(time_skipping: WorkflowEnvironment) -> Lab:
    return Lab(time_skipping)


def world(action: str, **changes: object) -> World:
    return World(names=["local-1"], kind="machine", action=action, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("action", ["join", "clean"])
async def test_a_machine_that_should_have_gpus_is_asked_before_it_is_ready(lab: Lab, action: str) -> None:
    asked = world(action, gpus=8)
    assert (await lab.run(asked, cached=0)).state is RunState.SUCCEEDED
    assert asked.order[-4:] == ["verify_machine", "nvml_facts", "end_machine_run", "end_operation"]


async def test_a_machine_without_gpus_is_not_asked(lab: Lab) -> None:
    asked = world("join")
    assert (await lab.run(asked)).state is RunState.SUCCEEDED
    assert "nvml_facts" not in asked.calls


async def test_a_machine_with_a_lost_gpu_is_failed_and_never_ready(lab: Lab) -> None:
    lost = world(
        "join", gpus=8, trouble={"nvml_facts": lambda _: fails(FailureClass.GPU_LOST, "GPU 3 is gone")}
    )
    assert (await lab.run(lost)).state is RunState.FAILED
    assert "gpu-lost: GPU 3 is gone" in lost.cards["local-1"]
    assert "end_machine_run" not in lost.calls
