"""One attempt of a step, with all that is needed to run it."""

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncSession

from activities.nvml import nvml_environment
from activities.signatures import StepTask
from activities.supervisor.spec import StepSpec
from activities.targets import ClaimedMachine
from database.run_locks import refuse_superseded, share_live_run
from database.steps import begin_step, plan_of_run
from database.tables import Run, StepRun
from database.waiting import note_waiting
from profiles.plan import Plan, PlanStep

# The kind whose steps need nvidia-ml-py on the machine.
NVML_FACTS = "nvml.facts"


@dataclass(frozen=True, slots=True)
class Attempt:
    """What is run where, and the record it goes into."""

    held: ClaimedMachine
    step: PlanStep
    record: StepRun
    spec: StepSpec
    # As in StepTask.
    retry_in: int | None = None


def step_key(run_id: object, position: int, attempt: int) -> str:
    """What names an attempt on its machine, for ever."""
    return f"{run_id}.{position}.{attempt}"


async def begin_attempt(session: AsyncSession, held: ClaimedMachine, task: StepTask) -> Attempt:
    """Reads the step from the run's plan and makes its record, or finds the one that is there.

    Raises RunCanceledError when the run's end has been asked for, SupersededError when its node has moved on.
    """
    await refuse_superseded(session, held.run)
    step = (await _plan(session, held.run)).steps[task.position]
    if held.run.waiting is not None:
        # First of all: a lock that others share already could not be made the writer's own.
        await note_waiting(session, task.run_id, None)
    # Whoever asks for its end from here on finds the record; whoever has asked before is found by this.
    await share_live_run(session, held.run)
    record = await begin_step(
        session,
        run_id=task.run_id,
        position=task.position,
        attempt=task.attempt,
        name=step.name,
        uses=step.uses,
        machine=task.machine_id,
    )
    return _attempt(held, step, record, task.retry_in)


async def attempt_of(session: AsyncSession, held: ClaimedMachine, record: StepRun) -> Attempt:
    """The attempt of a record that is there; nothing is begun by this."""
    return _attempt(held, (await _plan(session, held.run)).steps[record.position], record)


def _attempt(held: ClaimedMachine, step: PlanStep, record: StepRun, retry_in: int | None = None) -> Attempt:
    assert held.run.claim_token is not None, "a machine that is held has its token"
    spec = StepSpec(
        key=step_key(record.run_id, record.position, record.attempt),
        token=held.run.claim_token,
        run=step.run.encode(),
        check=None if step.check is None else step.check.encode(),
        interpreter=step.interpreter,
        timeout_s=step.timeout_seconds,
        environment={
            "BRINGUP_OPERATION": str(held.run.operation_id),
            "BRINGUP_CLUSTER": held.cluster or "",
            "BRINGUP_NODE": held.run.name,
            "BRINGUP_MACHINE": held.machine.id,
            "BRINGUP_STEP": step.name,
            "BRINGUP_ATTEMPT": str(record.attempt),
            **(nvml_environment() if step.uses == NVML_FACTS else {}),
        },
    )
    return Attempt(held=held, step=step, record=record, spec=spec, retry_in=retry_in)


# Plans by digest, whose text never changes: one is read once for all steps of all nodes that have it.
_PLANS: dict[str, Plan] = {}
_MOST_PLANS = 256


async def _plan(session: AsyncSession, run: Run) -> Plan:
    known = _PLANS.get(run.plan_digest or "")
    if known is None:
        known = Plan.from_canonical(await plan_of_run(session, run.id))
        if len(_PLANS) >= _MOST_PLANS:
            _PLANS.clear()
        _PLANS[run.plan_digest or known.digest()] = known
    return known
