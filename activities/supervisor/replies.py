"""The supervisor's answers, parsed strictly: what is not understood is an error, never a guess."""

from __future__ import annotations

from typing import cast, get_args

from activities.supervisor.errors import (
    SupervisorError,
    SupervisorFailureClass,
    TokenRefused,
    Unproven,
    classify,
)
from activities.supervisor.spec import CancelProof, Containment, MachineFacts, Outcome, StepOutcome, StepState

# Failures that the supervisor gives their class itself.
_NAMED: dict[str, SupervisorFailureClass] = {
    "validation": "validation",
    "health": "health",
    "lost-machine": "lost-machine",
    "overtaken": "superseded",
}


def parse(words: str, arguments: tuple[str, ...], endpoint: str) -> dict[str, str]:
    """The fields of an `end` answer. A `fail` answer is raised as the error it stands for."""
    kind, _, rest = words.partition(" ")
    if kind == "end":
        return dict(word.partition("=")[::2] for word in rest.split())
    code, _, text = rest.partition(" ")
    if code == "superseded" and text.isdigit():
        token = int(arguments[1] if arguments[0] == "token" else arguments[2])
        raise TokenRefused(endpoint, token, int(text))
    if code == "unproven":
        raise Unproven(f"{endpoint}: {text}")
    message = f"{endpoint}: supervisor {arguments[0]}: {text or words}"
    if code in _NAMED:
        raise SupervisorError(f"{endpoint}: {text}", _NAMED[code])
    raise SupervisorError(message, classify(text) if code == "io" else "internal")


def step_outcome(fields: dict[str, str]) -> StepOutcome:
    """The answer to a run."""
    try:
        clock = float(fields["btime"])
        return StepOutcome(
            state=StepState(fields["state"]),
            exit_status=_number(fields["exit"]),
            signal=_number(fields["signal"]),
            outcome=_outcome(fields["outcome"], fields["exit"]),
            stdout_size=int(fields["out"]),
            stderr_size=int(fields["err"]),
            output_size=int(fields["output"]),
            rebooted=fields["rebooted"] == "1",
            started_at=_time(fields["begin"], clock),
            ended_at=_time(fields["end"], clock),
            clean=fields["clean"] == "1",
        )
    except (KeyError, ValueError) as error:
        raise SupervisorError(f"the supervisor's answer {fields} is not understood: {error!r}") from error


def cancel_proof(fields: dict[str, str]) -> CancelProof:
    """The answer to a cancel."""
    try:
        state = None if fields["state"] == "running" else StepState(fields["state"])
        return CancelProof(state, fields["clean"] == "1")
    except (KeyError, ValueError) as error:
        raise SupervisorError(f"the supervisor's answer {fields} is not understood: {error!r}") from error


def machine_facts(text: bytes, endpoint: str) -> MachineFacts:
    """The `name=value` lines of facts."""
    try:
        fields = dict(line.split("=", 1) for line in text.decode().splitlines())
        containment = fields["containment"]
        if containment not in get_args(Containment):
            raise ValueError(containment)
        return MachineFacts(
            hostname=fields["hostname"],
            boot_id=fields["boot_id"],
            os_id=fields["os_id"],
            os_version=fields["os_version"],
            kernel=fields["kernel"],
            architecture=fields["architecture"],
            cpus=int(fields["cpus"]),
            memory_kb=int(fields["memory_kb"]),
            python3=fields["python3"] or None,
            containment=cast(Containment, containment),
        )
    except (KeyError, ValueError) as error:
        raise SupervisorError(
            f"{endpoint}: the machine's facts are not understood: {error!r} in {text!r}"
        ) from error


def _outcome(text: str, exit_status: str) -> Outcome | None:
    if text == "ran":  # the word of an earlier version's records for a body without a check, whatever its end
        return "changed" if exit_status == "0" else None
    if text == "-":
        return None
    if text not in get_args(Outcome):
        raise ValueError(text)
    return cast(Outcome, text)


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)


def _time(text: str, clock: float) -> float | None:
    return None if text == "-" else clock + float(text)
