"""From how a step ended on its machine to what is recorded of it: a state, an outcome, or a failure card."""

from activities.failures import card
from activities.nvml import nvml_failure
from activities.steps.attempt import NVML_FACTS
from activities.supervisor.spec import StepOutcome, StepState
from database.steps import StepEnd
from domain.failures import STEP_CLASSES, FailureCard, FailureClass
from domain.states import RunState
from profiles.plan import PlanStep

# What the supervisor writes to the step's standard error before the output of the check that failed.
CHECK_SAID = "; the check's output:\n"


def cancelled_text(by: str | None) -> str:
    """What is said of a step that was cancelled, wherever that is learnt."""
    return f"was cancelled{f' by {by}' if by else ''}; nothing of it is left"


def step_end(
    outcome: StepOutcome,
    step: PlanStep,
    *,
    attempt: int,
    machine: str,
    stderr_tail: str,
    canceled_by: str | None = None,
) -> StepEnd:
    """Good only when the step exited with 0 and its check, if it has one, agrees.

    A step that reboots is good once the machine has a new boot id; its check is then asked anew.
    """
    if step.reboots and rebooted_well(outcome):
        return StepEnd(state=RunState.SUCCEEDED, outcome="changed", exit_status=outcome.exit_status)
    failed = _nvml(outcome, step, stderr_tail) or _failure(outcome, step, canceled_by)
    if failed is None:
        # Asking a driver changes nothing.
        said = "no-change" if step.uses == NVML_FACTS else outcome.outcome
        return StepEnd(state=RunState.SUCCEEDED, outcome=said, exit_status=outcome.exit_status)
    failure_class, message = failed
    failed_card: FailureCard = card(failure_class, message, machine=machine).model_copy(
        update={
            "step": step.name,
            "attempt": attempt,
            "exit_status": outcome.exit_status,
            "signal": outcome.signal,
            "stderr_tail": _said(outcome, stderr_tail),
            "of_step": failure_class in STEP_CLASSES or outcome.state is StepState.EXITED,
        }
    )
    state = RunState.CANCELED if outcome.state is StepState.CANCELED else RunState.FAILED
    return StepEnd(
        state=state,
        outcome=outcome.outcome,
        exit_status=outcome.exit_status,
        signal=outcome.signal,
        card=failed_card,
    )


def _nvml(outcome: StepOutcome, step: PlanStep, stderr_tail: str) -> tuple[FailureClass, str] | None:
    return nvml_failure(outcome, stderr_tail) if step.uses == NVML_FACTS else None


def _said(outcome: StepOutcome, stderr_tail: str) -> str:
    """Of a step that ran well and whose check still fails, only the check's words explain the failure."""
    if outcome.outcome != "verify-failed":
        return stderr_tail
    return stderr_tail.rpartition(CHECK_SAID)[2]


def rebooted_well(outcome: StepOutcome) -> bool:
    """Whether the machine has rebooted, and the step did nothing worse than to go down with it."""
    if not outcome.rebooted:
        return False
    gone_down = outcome.state is StepState.REBOOTED
    ended = outcome.state is StepState.EXITED and (outcome.exit_status == 0 or outcome.signal is not None)
    return gone_down or ended


def _failure(
    outcome: StepOutcome, step: PlanStep, canceled_by: str | None
) -> tuple[FailureClass, str] | None:
    match outcome.state:
        case StepState.TIMED_OUT:
            late = f"ended after its timeout of {step.timeout_seconds} s"
            if outcome.clean:
                return FailureClass.TIMEOUT, f"{late}; nothing of it is left"
            # Not to be run again beside what may still be there.
            return FailureClass.HEALTH, f"{late}; what is left of it could not be ended"
        case StepState.CANCELED:
            return FailureClass.CANCELLED, cancelled_text(canceled_by)
        case StepState.REBOOTED:
            return FailureClass.LOST_MACHINE, "the machine rebooted or was off while it ran"
        case StepState.LOST:
            lost = "its supervisor on the machine was killed while it ran"
            if outcome.clean:
                return FailureClass.LOST_MACHINE, f"{lost}; nothing of it is left"
            return FailureClass.HEALTH, f"{lost}; what is left of it could not be ended"
        case StepState.EXITED:
            return _exit_failure(outcome)


def _exit_failure(outcome: StepOutcome) -> tuple[FailureClass, str] | None:
    if outcome.signal is not None:
        return FailureClass.SIGNAL, f"was killed by signal {outcome.signal}"
    if outcome.exit_status != 0:
        return FailureClass.EXIT, f"exited with status {outcome.exit_status}"
    if outcome.outcome == "verify-failed":
        return FailureClass.EXIT, "ran and exited with status 0, but its check still fails"
    return None
