"""What workflows call: names, inputs and results of every activity. Import-light on purpose.

Each Protocol is implemented by a class of this package that registers its methods under the same names.
Inputs and results are small: bodies, logs and secrets are read by the activity, never passed on.
"""

from typing import Protocol
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from temporalio import activity

from domain.failures import FailureCard
from domain.states import RunState
from profiles.kinds.base import OnFailure


class Message(BaseModel):
    """Base of everything that goes through Temporal."""

    model_config = ConfigDict(frozen=True)


class OperationRef(Message):
    operation_id: UUID


class OperationOutline(Message):
    """What the operation's workflow must know to fan out."""

    action: str
    tenant_id: str
    cluster: str | None
    runs: int
    batches: int


class BatchRef(Message):
    """Runs number `batch * 500` and following of an operation."""

    operation_id: UUID
    batch: int


class RunHeader(Message):
    """One run of a batch. `subject` is the node's or the machine's id."""

    run_id: UUID
    operation_id: UUID
    kind: str
    subject: str
    name: str
    action: str
    generation: int
    tenant_id: str
    cluster: str | None


class BatchRuns(Message):
    runs: list[RunHeader]


class RunRef(Message):
    run_id: UUID


class DisplaceRequest(Message):
    """See that the workflow that holds this id closes; with `cancel`, ask it to stop first."""

    workflow_id: str
    operation_id: UUID
    cancel: bool = True


class RunEnd(Message):
    """How a run ended other than by success."""

    run_id: UUID
    state: RunState
    card: FailureCard | None = None


class OperationEnd(Message):
    """`reason` says in a line why the operation did not succeed."""

    state: RunState
    reason: str | None = None


class Claimed(Message):
    """The machine that this run may touch now, under `token`."""

    machine_id: str
    machine: str
    address: str
    token: int
    # How often a machine that does not answer is tried before it is given up.
    reach_tries: int = 120


class MachineTask(Message):
    """Something to do on a claimed machine."""

    run_id: UUID
    machine_id: str
    token: int


class StepHeader(Message):
    """What the workflow must know of a step of the plan."""

    position: int
    name: str
    uses: str
    summary: str
    timeout_seconds: int
    attempts: int
    backoff_seconds: int
    has_check: bool
    on_failure: OnFailure


class PlanOutline(Message):
    """The steps still to be done, out of `total`: a retry goes on where the run before it stopped."""

    digest: str
    total: int
    steps: list[StepHeader] = Field(max_length=500)


class StepTask(Message):
    """One attempt of one step. The attempt is counted by the workflow, never by Temporal's retries."""

    run_id: UUID
    machine_id: str
    token: int
    position: int
    attempt: int
    # After how many seconds the step is tried once more if this attempt fails by itself; None: it is not.
    retry_in: int | None = None


class StepReport(Message):
    outcome: str


class HoldRequest(Message):
    """A run waits for a person, for the `number`th time."""

    run_id: UUID
    number: int
    card: FailureCard


class HoldRef(Message):
    """Which hold of which run a decision is about."""

    run_id: UUID
    number: int


class CustodyTask(Message):
    """Give a node's machine back. `card` says why it could not be handled, when it could not."""

    run_id: UUID
    machine_id: str
    card: FailureCard | None = None


class Verified(Message):
    """A machine that answers; `gpus` is how many its machine type promises."""

    gpus: int = 0


class NvmlReport(Message):
    """What the machine's driver sees; `problem` is what is wrong although the machine may be used."""

    gpus: int
    driver: str | None
    problem: str | None


class RecordActivities(Protocol):
    """Bookkeeping in the database; short, idempotent, retried without end."""

    @activity.defn(name="open_operation")
    async def open_operation(self, ref: OperationRef) -> OperationOutline: ...

    @activity.defn(name="load_batch")
    async def load_batch(self, ref: BatchRef) -> BatchRuns: ...

    @activity.defn(name="displace")
    async def displace(self, request: DisplaceRequest) -> None: ...

    @activity.defn(name="claim_machine")
    async def claim_machine(self, ref: RunRef) -> Claimed: ...

    @activity.defn(name="end_run")
    async def end_run(self, end: RunEnd) -> None: ...

    @activity.defn(name="hold_run")
    async def hold_run(self, request: HoldRequest) -> None: ...

    @activity.defn(name="end_operation")
    async def end_operation(self, ref: OperationRef) -> OperationEnd: ...

    @activity.defn(name="hand_over_machine")
    async def hand_over_machine(self, task: CustodyTask) -> None: ...

    @activity.defn(name="end_machine_run")
    async def end_machine_run(self, ref: RunRef) -> None: ...


class MachineActivities(Protocol):
    """Work on a machine over SSH or through its provider."""

    @activity.defn(name="await_ssh")
    async def await_ssh(self, task: MachineTask) -> None: ...

    @activity.defn(name="make_plan")
    async def make_plan(self, task: MachineTask) -> PlanOutline: ...

    @activity.defn(name="finish_node")
    async def finish_node(self, task: MachineTask) -> None: ...

    @activity.defn(name="reset_machine")
    async def reset_machine(self, task: MachineTask) -> None: ...

    @activity.defn(name="verify_machine")
    async def verify_machine(self, task: MachineTask) -> Verified | None: ...


class StepActivities(Protocol):
    """The steps themselves."""

    @activity.defn(name="run_step")
    async def run_step(self, task: StepTask) -> StepReport: ...

    @activity.defn(name="confirm_cancel")
    async def confirm_cancel(self, task: MachineTask) -> None: ...


class NvmlActivities(Protocol):
    """What a machine's NVIDIA driver says."""

    @activity.defn(name="nvml.facts")
    async def nvml_facts(self, task: MachineTask) -> NvmlReport: ...
