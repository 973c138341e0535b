"""From how the probe ended to the class and message of its failure."""

from __future__ import annotations

from activities.supervisor.spec import StepOutcome, StepState
from domain.failures import FailureClass
from profiles.kinds import nvml_probe

#: Exit statuses of the probe, and of a shell that finds no interpreter to run it.
CLASSES = {status: FailureClass(word) for status, word in nvml_probe.WORDS.items()}
NO_PYTHON = "the machine has no /usr/bin/python3, which asks its NVIDIA driver: install python3 there"
_NOT_FOUND = (126, 127)


def nvml_failure(outcome: StepOutcome, stderr: str) -> tuple[FailureClass, str] | None:
    """What failed in a step of kind `nvml.facts`, or None where this is nothing of NVML's own.

    `stderr` is the end of what the step wrote there. None means: it ended well, or the general classes fit
    (signal, cancel, lost machine, a status that is not the probe's). A timeout is a hung driver: each call
    has a deadline, and only a process that the kernel holds fast outlives its own.
    """
    said = _said(stderr)
    if outcome.state is StepState.TIMED_OUT:
        proof = "nothing of it is left" if outcome.clean else "what is left of it could not be ended"
        return FailureClass.NVML_HUNG, f"{said or 'the probe did not end within its timeout'}; {proof}"
    if outcome.state is not StepState.EXITED or outcome.exit_status is None:
        return None
    if outcome.exit_status in _NOT_FOUND:
        return FailureClass.VALIDATION, NO_PYTHON
    failed = CLASSES.get(outcome.exit_status)
    return None if failed is None else (failed, said or f"the probe ended with status {outcome.exit_status}")


def _said(stderr: str) -> str:
    """The probe's last line without its class."""
    for line in reversed(stderr.splitlines()):
        word, colon, message = line.partition(": ")
        if colon and word in nvml_probe.WORDS.values():
            return message.strip()
    return ""
