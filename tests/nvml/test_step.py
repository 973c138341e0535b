"""The step kind `nvml.facts`: what an author may write, and its plan on a machine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from activities.nvml import nvml_environment, nvml_failure, prepare_nvml
from activities.supervisor.client import Supervisor
from activities.supervisor.spec import StepOutcome, StepSpec
from domain.failures import FailureClass
from profiles.checking import check, parse
from profiles.compiling import compile_plan
from profiles.kinds.base import Phase
from profiles.plan import PlanStep
from tests.nvml.conftest import LIBRARY, GpuMachine
from tests.ssh.helpers import Logs


def written(**with_: object) -> dict[str, object]:
    """A recipe of one such step."""
    step = {"name": "gpus", "uses": "nvml.facts"} | ({"with": with_} if with_ else {})
    return {"schema": 1, "steps": [step]}


def planned(**with_: object) -> PlanStep:
    content = parse(written(**with_))
    plan = compile_plan(content, profile="t/x@1", content_digest="-", phase=Phase.CREATE, hostname=None)
    return plan.steps[0]


def run(machine: GpuMachine, step: PlanStep, key: str) -> tuple[StepOutcome, Logs]:
    """As the activity of steps does it: module, environment, supervisor."""
    prepare_nvml(machine.connection)
    spec = StepSpec(
        key=key,
        token=1,
        run=step.run.encode(),
        interpreter=step.interpreter,
        timeout_s=step.timeout_seconds,
        environment=nvml_environment(),
    )
    logs = Logs()
    outcome = Supervisor(machine.connection).run(spec, on_stdout=logs.stdout.take, on_stderr=logs.stderr.take)
    assert outcome is not None
    return outcome, logs


def test_with_may_be_left_out_and_the_time_limit_is_short() -> None:
    step = planned()
    assert (step.uses, step.interpreter, step.timeout_seconds) == ("nvml.facts", "/usr/bin/python3 -I", 180)
    assert step.check is None


@pytest.mark.parametrize(
    ("with_", "accepted"),
    [
        ({"gpus": "8"}, "a whole number from 0 to 64"),
        ({"gpus": 65}, "a whole number from 0 to 64"),
        ({"driver": "550; reboot"}, "a version such as 550.54.15 or 550"),
        ({"driver": 550}, "a version such as 550.54.15 or 550"),
        ({"count": 8}, "count"),
    ],
)
def test_what_is_expected_must_be_numbers_and_versions(with_: dict[str, Any], accepted: str) -> None:
    (problem,) = check(written(**with_))
    assert accepted in f"{problem}"


@pytest.mark.system
def test_the_log_is_for_people_and_the_output_for_programs(machine: GpuMachine) -> None:
    outcome, logs = run(machine, planned(gpus=8, driver="550"), "step-good.1")
    assert outcome.exit_status == 0
    assert nvml_failure(outcome, "") is None
    lines = logs.stdout.data.decode().splitlines()
    assert lines[0] == "driver 550.54.15, NVML 12.550.54.15, CUDA 12.4"
    assert len(lines) == 9
    assert lines[1].startswith("GPU 0  NVIDIA H100 80GB HBM3  79.6 GiB  00000000:1B:00.0  GPU-")
    output = json.loads(Supervisor(machine.connection).output("step-good.1"))
    assert len(output["gpus"]) == 8
    assert output["driver"]["version"] == "550.54.15"


@pytest.mark.system
@pytest.mark.parametrize(
    ("with_", "said"),
    [
        ({"gpus": 4}, "4 GPUs are expected, the driver sees 8"),
        ({"driver": "535"}, "driver 535 is expected, 550.54.15 is loaded"),
        ({"driver": "550.5"}, "driver 550.5 is expected, 550.54.15 is loaded"),
    ],
)
def test_another_machine_than_expected_is_a_failure_of_health(
    machine: GpuMachine, with_: dict[str, Any], said: str
) -> None:
    outcome, logs = run(machine, planned(**with_), f"step-{abs(hash(said))}")
    assert outcome.exit_status == 25
    assert nvml_failure(outcome, logs.stderr.data.decode()) == (FailureClass.HEALTH, said)


@pytest.mark.system
def test_an_absent_library_fails_the_step_with_its_class(machine: GpuMachine) -> None:
    machine.shell(f"rm {LIBRARY}")
    outcome, logs = run(machine, planned(), "step-absent.1")
    assert outcome.exit_status == 20
    failed = nvml_failure(outcome, logs.stderr.data.decode())
    assert failed == (FailureClass.NVML_ABSENT, "libnvidia-ml.so.1 is not there or cannot be loaded")
