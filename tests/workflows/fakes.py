"""Activities with scripted answers, registered under the real names, for workflows on the test server."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from temporalio import activity

from activities.failures import failure
from activities.signatures import (
    BatchRef,
    BatchRuns,
    Claimed,
    CustodyTask,
    DisplaceRequest,
    HoldRequest,
    MachineTask,
    NvmlReport,
    OperationEnd,
    OperationOutline,
    OperationRef,
    PlanOutline,
    RunEnd,
    RunHeader,
    RunRef,
    StepHeader,
    StepReport,
    StepTask,
    Verified,
)
from domain.failures import FailureClass, failure_card
from domain.states import RunState, combined_state
from profiles.kinds.base import OnFailure


def step(position: int, name: str, **changes: Any) -> StepHeader:
    """A step header with the usual values."""
    values: dict[str, Any] = {
        "position": position,
        "name": name,
        "uses": "command",
        "summary": f"command {name}",
        "timeout_seconds": 60,
        "attempts": 1,
        "backoff_seconds": 5,
        "has_check": False,
        "on_failure": OnFailure.FAIL,
    }
    return StepHeader(**values | changes)


def fails(
    failure_class: FailureClass,
    message: str = "as scripted",
    *,
    retried: bool = False,
    of_step: bool | None = None,
) -> Exception:
    """The failure that an activity of ours raises."""
    said = failure_card(failure_class, message, seen=datetime.now(UTC))
    return failure(said.model_copy(update={"of_step": of_step}), retried=retried)


@dataclass
class World:
    """What exists, what may go wrong, and what was done. `trouble` maps an activity's key to an exception."""

    names: list[str] = field(default_factory=lambda: ["gpu-1"])
    action: str = "create"
    kind: str = "node"
    steps: list[StepHeader] = field(default_factory=lambda: [step(0, "one"), step(1, "two")])
    trouble: dict[str, Callable[[int], Exception | None]] = field(default_factory=dict)
    first_step: int = 0
    gpus: int = 0
    unreadable_plan: bool = False
    block: dict[str, asyncio.Event] = field(default_factory=dict)
    # Like `block`, but without heartbeats: such an activity ends well, whatever is asked of it meanwhile.
    deaf: dict[str, asyncio.Event] = field(default_factory=dict)
    operation_id: uuid.UUID = field(default_factory=uuid.uuid4)
    calls: Counter[str] = field(default_factory=Counter)
    order: list[str] = field(default_factory=list)
    ends: dict[str, RunState] = field(default_factory=dict)
    cards: dict[str, str] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    at_work: set[str] = field(default_factory=set)
    most_at_work: int = 0

    def __post_init__(self) -> None:
        self._happened = asyncio.Condition()
        self.run_ids = {name: uuid.uuid4() for name in self.names}
        self.subjects = {name: str(uuid.uuid4()) for name in self.names}

    def name_of(self, run_id: uuid.UUID) -> str:
        """Whose run it is."""
        return next(name for name, known in self.run_ids.items() if known == run_id)

    async def happen(self, key: str) -> None:
        """Counts a call, waits where the test asked for it, and raises what it scripted."""
        async with self._happened:
            self.calls[key] += 1
            self.order.append(key)
            self._happened.notify_all()
        if key in self.deaf:
            await self.deaf[key].wait()
        if key in self.block:
            while not self.block[key].is_set():
                activity.heartbeat()
                await asyncio.sleep(0.05)
        script = self.trouble.get(key)
        error = script(self.calls[key]) if script else None
        if error is not None:
            raise error

    async def reached(self, *keys: str) -> None:
        """Waits until each of these has been called."""
        async with self._happened:
            await self._happened.wait_for(lambda: all(self.calls[key] for key in keys))

    def ended(self, run_id: uuid.UUID, state: RunState, text: str = "") -> None:
        """The first end stands, as in the database."""
        name = self.name_of(run_id)
        self.at_work.discard(name)
        if name not in self.ends:
            self.ends[name] = state
            self.cards[name] = text


class Fakes:
    """All activities of a World."""

    def __init__(self, world: World) -> None:
        self.world = world

    def registered(self) -> list[Callable[..., Any]]:
        """What a worker takes."""
        return [getattr(self, name) for name in NAMES]

    @activity.defn(name="open_operation")
    async def open_operation(self, ref: OperationRef) -> OperationOutline:
        await self.world.happen("open_operation")
        count = len(self.world.names)
        return OperationOutline(
            action=self.world.action, tenant_id="t", cluster="c", runs=count, batches=-(-count // 500)
        )

    @activity.defn(name="load_batch")
    async def load_batch(self, ref: BatchRef) -> BatchRuns:
        names = self.world.names[ref.batch * 500 : (ref.batch + 1) * 500]
        return BatchRuns(runs=[self.header(name) for name in names])

    def header(self, name: str) -> RunHeader:
        """The run of one name."""
        return RunHeader(
            run_id=self.world.run_ids[name],
            operation_id=self.world.operation_id,
            kind=self.world.kind,
            subject=self.world.subjects[name],
            name=name,
            action=self.world.action,
            generation=1,
            tenant_id="t",
            cluster="c",
        )

    @activity.defn(name="displace")
    async def displace(self, request: DisplaceRequest) -> None:
        await self.world.happen("displace" if request.cancel else "wait for the other")

    @activity.defn(name="claim_machine")
    async def claim_machine(self, ref: RunRef) -> Claimed:
        name = self.world.name_of(ref.run_id)
        self.world.at_work.add(name)
        self.world.most_at_work = max(self.world.most_at_work, len(self.world.at_work))
        await self.world.happen(f"claim {name}")
        return Claimed(machine_id=f"m-{name}", machine=f"m-{name}", address="192.0.2.1", token=1)

    @activity.defn(name="end_run")
    async def end_run(self, end: RunEnd) -> None:
        await self.world.happen(f"end {self.world.name_of(end.run_id)}")
        self.world.ended(end.run_id, end.state, end.card.text() if end.card else "")

    @activity.defn(name="hold_run")
    async def hold_run(self, request: HoldRequest) -> None:
        name = self.world.name_of(request.run_id)
        self.world.held[name] = request.number
        await self.world.happen(f"hold {name} {request.number}")

    @activity.defn(name="end_operation")
    async def end_operation(self, ref: OperationRef) -> OperationEnd:
        await self.world.happen("end_operation")
        return OperationEnd(state=combined_state(Counter(self.world.ends.values())))

    @activity.defn(name="hand_over_machine")
    async def hand_over_machine(self, task: CustodyTask) -> None:
        await self.world.happen(f"hand over {self.world.name_of(task.run_id)}")
        self.world.ended(task.run_id, RunState.SUCCEEDED, task.card.text() if task.card else "")

    @activity.defn(name="end_machine_run")
    async def end_machine_run(self, ref: RunRef) -> None:
        await self.world.happen("end_machine_run")
        self.world.ended(ref.run_id, RunState.SUCCEEDED)

    @activity.defn(name="await_ssh")
    async def await_ssh(self, task: MachineTask) -> None:
        await self.world.happen(f"ssh {self.world.name_of(task.run_id)}")

    @activity.defn(name="make_plan")
    async def make_plan(self, task: MachineTask) -> PlanOutline | StepReport:
        await self.world.happen("make_plan")
        if self.world.unreadable_plan:
            return StepReport(outcome="not a plan")
        return PlanOutline(
            digest="sha256:0", total=len(self.world.steps), steps=self.world.steps[self.world.first_step :]
        )

    @activity.defn(name="run_step")
    async def run_step(self, task: StepTask) -> StepReport:
        name = self.world.name_of(task.run_id)
        await self.world.happen(f"step {name} {task.position}.{task.attempt}")
        return StepReport(outcome="changed")

    @activity.defn(name="confirm_cancel")
    async def confirm_cancel(self, task: MachineTask) -> None:
        await self.world.happen(f"confirm {self.world.name_of(task.run_id)}")

    @activity.defn(name="finish_node")
    async def finish_node(self, task: MachineTask) -> None:
        await self.world.happen(f"finish {self.world.name_of(task.run_id)}")
        self.world.ended(task.run_id, RunState.SUCCEEDED)

    @activity.defn(name="reset_machine")
    async def reset_machine(self, task: MachineTask) -> None:
        await self.world.happen("reset_machine")

    @activity.defn(name="verify_machine")
    async def verify_machine(self, task: MachineTask) -> Verified | None:
        await self.world.happen("verify_machine")
        return Verified(gpus=self.world.gpus)

    @activity.defn(name="nvml.facts")
    async def nvml_facts(self, task: MachineTask) -> NvmlReport:
        await self.world.happen("nvml_facts")
        return NvmlReport(gpus=self.world.gpus, driver="550.54.15", problem=None)


NAMES = [
    "open_operation",
    "load_batch",
    "displace",
    "claim_machine",
    "end_run",
    "hold_run",
    "end_operation",
    "hand_over_machine",
    "end_machine_run",
    "await_ssh",
    "make_plan",
    "run_step",
    "confirm_cancel",
    "finish_node",
    "reset_machine",
    "verify_machine",
    "nvml_facts",
]
