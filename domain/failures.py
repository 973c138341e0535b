"""What can go wrong, in classes, and the card that says so wherever a failure is shown."""

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class FailureClass(StrEnum):
    """The design's failure classes; see POLICIES for what follows from each."""

    CONNECT = "connect"
    LOST_MACHINE = "lost-machine"
    PROVIDER = "provider"
    CAPACITY = "capacity"
    QUOTA = "quota"
    HOST_KEY = "host-key"
    AUTH = "auth"
    PRIVILEGE = "privilege"
    VALIDATION = "validation"
    HEALTH = "health"
    NO_SPACE = "no-space"
    NVML_ABSENT = "nvml-absent"
    NVML_FUNCTION = "nvml-function"
    GPU_LOST = "gpu-lost"
    NVML_HUNG = "nvml-hung"
    NVML = "nvml"
    TIMEOUT = "timeout"
    EXIT = "exit"
    SIGNAL = "signal"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    INTERNAL = "internal"


# Classes that only a step has that ran and did not do its work.
STEP_CLASSES = frozenset(
    {
        FailureClass.EXIT,
        FailureClass.SIGNAL,
        FailureClass.TIMEOUT,
        FailureClass.NVML,
        FailureClass.NVML_ABSENT,
        FailureClass.NVML_FUNCTION,
        FailureClass.NVML_HUNG,
        FailureClass.GPU_LOST,
    }
)


class FailurePolicy(BaseModel):
    """Whether the same attempt is tried again by itself, and what a person can do."""

    model_config = ConfigDict(frozen=True)

    retried: bool
    action: str


_P = FailurePolicy
POLICIES: dict[FailureClass, FailurePolicy] = {
    FailureClass.CONNECT: _P(
        retried=True, action="Check that the machine is on and that its address and SSH port answer."
    ),
    FailureClass.LOST_MACHINE: _P(retried=True, action="Look at the machine's console; it went away."),
    FailureClass.PROVIDER: _P(retried=True, action="Look at the provider's own message and state."),
    FailureClass.CAPACITY: _P(retried=True, action="Add machines to the pool or wait until some are free."),
    FailureClass.QUOTA: _P(retried=True, action="Ask the pool's owner for a larger quota."),
    FailureClass.HOST_KEY: _P(
        retried=False, action="The machine shows another host key: check who answers, then join it again."
    ),
    FailureClass.AUTH: _P(retried=False, action="Put the machine's key into the user's authorized_keys."),
    FailureClass.PRIVILEGE: _P(retried=False, action="Give the SSH user root rights on the machine."),
    FailureClass.VALIDATION: _P(retried=False, action="Correct the request or the profile."),
    FailureClass.HEALTH: _P(retried=False, action="Have the machine looked at before it is used."),
    FailureClass.NO_SPACE: _P(retried=False, action="Free disk space on the machine."),
    FailureClass.NVML_ABSENT: _P(
        retried=False, action="Install the NVIDIA driver, which brings libnvidia-ml.so.1, on the machine."
    ),
    FailureClass.NVML_FUNCTION: _P(
        retried=False, action="Install a newer NVIDIA driver; the machine's lacks a function that is needed."
    ),
    FailureClass.GPU_LOST: _P(
        retried=False,
        action="Look for Xid errors in the kernel's log and power cycle the machine; a GPU lost again is "
        "broken or badly seated.",
    ),
    FailureClass.NVML_HUNG: _P(
        retried=False,
        action="Look at the kernel's log and reboot the machine; its NVIDIA driver does not answer.",
    ),
    FailureClass.NVML: _P(
        retried=False, action="Run nvidia-smi on the machine, which says more about what its driver refuses."
    ),
    FailureClass.TIMEOUT: _P(
        retried=False, action="Read the step's log; raise timeoutSeconds if it only needs longer."
    ),
    FailureClass.EXIT: _P(
        retried=False, action="Read the step's log and correct the profile or the machine."
    ),
    FailureClass.SIGNAL: _P(
        retried=False, action="Read the step's log; for signal 9 look for the kernel's OOM killer."
    ),
    FailureClass.CANCELLED: _P(
        retried=False,
        action="Retry the operation when it is wanted after all; a node can also be terminated.",
    ),
    FailureClass.SUPERSEDED: _P(retried=False, action="Nothing: a newer operation on this node took over."),
    FailureClass.INTERNAL: _P(
        retried=False,
        action="Report it with the workflow id; then retry the operation, or terminate the node.",
    ),
}

# Bounded, so that a card fits into a Temporal failure, a table cell and a terminal.
MESSAGE_LIMIT = 2_000
STDERR_LIMIT = 4_096


class FailureCard(BaseModel):
    """One failure, said the same way in StatusMessage, operation, CLI and Temporal failure."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    failure_class: FailureClass
    message: str = Field(min_length=1, max_length=MESSAGE_LIMIT)
    step: str | None = None
    attempt: int | None = None
    exit_status: int | None = None
    signal: int | None = None
    stderr_tail: str = Field(default="", max_length=STDERR_LIMIT)
    machine: str | None = None
    first_seen: datetime
    # Whether the step ran and did not do its work, of which its profile's `retry` and `onFailure: continue`
    # speak; None where the class says so.
    of_step: bool | None = None
    retryable: bool
    action: str
    workflow_id: str | None = None

    @property
    def is_of_step(self) -> bool:
        """Whether the step ran and did not do its work, which its profile decides about."""
        return self.failure_class in STEP_CLASSES if self.of_step is None else self.of_step

    def text(self) -> str:
        """One line for people, e.g. `exit: step tune: exited 3: no such file. Read the step's log ...`.

        A step that was attempted again says so: `exit: step tune, attempt 3: ...`.
        """
        tried = f", attempt {self.attempt}" if (self.attempt or 1) > 1 else ""
        where = f"step {self.step}{tried}: " if self.step else ""
        last = next((line.strip() for line in reversed(self.stderr_tail.splitlines()) if line.strip()), "")
        # Where the message was taken from that very line, once is enough.
        tail = f" ({last[:200]})" if last and self.message not in last else ""
        said = f"{self.message}{tail}".removesuffix(".")
        return f"{self.failure_class}: {where}{said}. {self.action}"


def failure_card(
    failure_class: FailureClass,
    message: str,
    *,
    seen: datetime,
    step: str | None = None,
    attempt: int | None = None,
    exit_status: int | None = None,
    signal: int | None = None,
    stderr_tail: str = "",
    machine: str | None = None,
    workflow_id: str | None = None,
) -> FailureCard:
    """Makes a card within its bounds; what follows from the class is read from POLICIES."""
    policy = POLICIES[failure_class]
    return FailureCard(
        failure_class=failure_class,
        message=(message.strip() or f"failed with class {failure_class}")[:MESSAGE_LIMIT],
        step=step,
        attempt=attempt,
        exit_status=exit_status,
        signal=signal,
        stderr_tail=stderr_tail[-STDERR_LIMIT:],
        machine=machine,
        first_seen=seen,
        retryable=policy.retried,
        action=policy.action,
        workflow_id=workflow_id,
    )
