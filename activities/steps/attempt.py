"""One attempt of a step, with all that is needed to run it."""

from dataclasses import dataclass
from functools import lru_cache

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from activities.nvml import nvml_environment
from activities.signatures import StepTask
from activities.supervisor.spec import StepSpec
from activities.targets import ClaimedMachine
from database.run_locks import RunCanceledError
from database.steps import begin_step, plan_of_run
from database.tables import Cluster, Node, StepRun
from domain.states import ENDING_RUN_STATES, RunState
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


def step_key(run_id: object, position: int, attempt: int) -> str:
    """What names an attempt on its machine, for ever."""
    return f"{run_id}.{position}.{attempt}"


async def begin_attempt(session: AsyncSession, held: ClaimedMachine, task: StepTask) -> Attempt:
    """Reads the step from the run's plan and makes its record, or finds the one that is there.

    Raises RunCanceledError when the run's end has been asked for.
    """
    if RunState(held.run.state) in ENDING_RUN_STATES:
        raise RunCanceledError(
            f"{held.run.action} of {held.run.name} was cancelled by {held.run.canceled_by}"
        )
    step = _plan(await plan_of_run(session, task.run_id)).steps[task.position]
    record = await begin_step(
        session,
        run_id=task.run_id,
        position=task.position,
        attempt=task.attempt,
        name=step.name,
        uses=step.uses,
        machine=task.machine_id,
    )
    cluster = await session.scalar(
        select(Cluster.name).join(Node, Node.cluster_id == Cluster.id).where(Node.id == held.run.node_id)
    )
    spec = StepSpec(
        key=step_key(task.run_id, task.position, task.attempt),
        token=task.token,
        run=step.run.encode(),
        check=None if step.check is None else step.check.encode(),
        interpreter=step.interpreter,
        timeout_s=step.timeout_seconds,
        environment={
            "BRINGUP_OPERATION": str(held.run.operation_id),
            "BRINGUP_CLUSTER": cluster or "",
            "BRINGUP_NODE": held.run.name,
            "BRINGUP_MACHINE": held.machine.id,
            "BRINGUP_STEP": step.name,
            "BRINGUP_ATTEMPT": str(task.attempt),
            **(nvml_environment() if step.uses == NVML_FACTS else {}),
        },
    )
    return Attempt(held=held, step=step, record=record, spec=spec)


@lru_cache(maxsize=256)
def _plan(text: str) -> Plan:
    return Plan.from_canonical(text)
