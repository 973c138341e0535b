"""Reading a machine's GPUs: one run of the probe under its supervisor."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from activities.nvml.errors import NO_PYTHON, nvml_failure
from activities.nvml.module import nvml_environment, prepare_nvml
from activities.ssh.connection import Connection
from activities.supervisor.client import Supervisor
from activities.supervisor.script import DEFAULT_BASE
from activities.supervisor.spec import StepOutcome, StepSpec, StepState
from domain.failures import FailureClass
from profiles.kinds.nvml_facts import probe_text

#: Seconds for all calls together, kept by the machine: the second net below the deadline of each call.
TIMEOUT_SECONDS = 180
CALL_SECONDS = 20.0
_LOST_TRIES = 3
_MOST_OUTPUT = 262_144


# What a machine says is stored and shown: bounded, and without what PostgreSQL cannot store.
Text = Annotated[
    str, AfterValidator(lambda value: value.replace("\0", "")), StringConstraints(max_length=256)
]


class _Fact(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


class Driver(_Fact):
    """Versions as the driver says them; `cuda` is the newest it supports, such as 12.4."""

    version: Text
    nvml: Text
    cuda: Text | None


class MigMode(_Fact):
    """Whether MIG is on now, and after the next reset."""

    enabled: bool
    pending: bool


class Gpu(_Fact):
    """One GPU; `mig`, `serial` and `ecc` are None where driver or GPU has no answer."""

    index: int
    uuid: Text
    pci_id: Text
    model: Text
    memory_bytes: int
    mig: MigMode | None
    serial: Text | None
    ecc: bool | None


class NvmlFacts(_Fact):
    """What the probe printed. With a lost GPU the others are there."""

    driver: Driver | None = None
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """What is known, and what is not: `failure` is a class with its message."""

    facts: NvmlFacts
    failure: tuple[FailureClass, str] | None


def read_facts(
    connection: Connection,
    *,
    python3: str | None,
    key: str,
    token: int,
    base: str = DEFAULT_BASE,
    call_seconds: float = CALL_SECONDS,
    timeout_seconds: int = TIMEOUT_SECONDS,
    should_stop: Callable[[], bool] = lambda: False,
) -> Reading | None:
    """Asks the machine's driver. None: `should_stop` said so, and a later call with the same key goes on.

    `key` names this reading for ever, as a step's does; `python3` is the path the machine's facts tell.
    Raises SshError and SupervisorError; what NVML says is in the answer.
    """
    if python3 is None:
        return Reading(NvmlFacts(), (FailureClass.VALIDATION, NO_PYTHON))
    prepare_nvml(connection, base)
    environment = {**nvml_environment(base), "BRINGUP_NVML_CALL_SECONDS": f"{call_seconds:g}"}
    supervisor = Supervisor(connection, base)
    for attempt in range(1, _LOST_TRIES + 1):
        spec = StepSpec(
            key=f"{key}.{attempt}",
            token=token,
            run=probe_text(report="json").encode(),
            environment=environment,
            timeout_s=timeout_seconds,
            interpreter=f"{python3} -I",
        )
        stdout, stderr = _Output(), _Output()
        outcome = supervisor.run(spec, on_stdout=stdout.take, on_stderr=stderr.take, should_stop=should_stop)
        if outcome is None:
            return None
        if outcome.state not in (StepState.LOST, StepState.REBOOTED) or attempt == _LOST_TRIES:
            return _reading(outcome, bytes(stdout.data), stderr.data.decode(errors="replace"))
    raise AssertionError("unreachable")


class _Output:
    """What came, up to more than any answer has."""

    def __init__(self) -> None:
        self.data = bytearray()

    def take(self, _offset: int, data: bytes) -> None:
        self.data += data[: max(0, _MOST_OUTPUT - len(self.data))]


def _reading(outcome: StepOutcome, stdout: bytes, stderr: str) -> Reading:
    failed = nvml_failure(outcome, stderr) or _other_failure(outcome, stderr)
    try:
        return Reading(NvmlFacts.model_validate(_answer(stdout)), failed)
    except (ValueError, ValidationError) as error:
        if failed is not None:
            return Reading(NvmlFacts(), failed)
        message = f"the probe's answer is not understood: {error}"
        return Reading(NvmlFacts(), (FailureClass.INTERNAL, message))


def _answer(stdout: bytes) -> Any:
    if len(stdout) == _MOST_OUTPUT:
        raise ValueError(f"it is longer than {_MOST_OUTPUT} bytes")
    return json.loads(stdout)


def _other_failure(outcome: StepOutcome, stderr: str) -> tuple[FailureClass, str] | None:
    """Ends that are not the probe's own: it crashed, or the machine took it away."""
    if outcome.state in (StepState.LOST, StepState.REBOOTED):
        return FailureClass.LOST_MACHINE, "the machine went away while its GPUs were read"
    if outcome.state is StepState.CANCELED:
        return FailureClass.CANCELLED, "reading the GPUs was cancelled on the machine"
    if outcome.signal is not None:
        return (
            FailureClass.NVML,
            f"the probe was killed by signal {outcome.signal}: the driver's library crashed",
        )
    if outcome.exit_status != 0:
        last = stderr.strip().splitlines()[-1:] or ["it said nothing"]
        return FailureClass.NVML, f"the probe ended with status {outcome.exit_status}: {last[0]}"
    return None
