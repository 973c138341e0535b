"""Retries: a new operation for the runs of an earlier one that did not succeed.

A run goes on where the last one stopped, with the plan that was frozen for it. Locks: request id, operation,
then nodes or machines by id.
"""

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Boolean, Integer, and_, cast, exists, func, or_, select
from sqlalchemy.dialects.postgresql import JSONB, distinct_on
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from database.matching import one_of
from database.operations import NewRun, claim_request_id, submit_operation
from database.refusals import invalid_state
from database.run_names import check_names
from database.tables import Claim, Machine, Node, Operation, PlanRow, Run, StepRun
from database.transitions import move_machine, move_node
from domain.failures import STEP_CLASSES, FailureCard
from domain.states import FINAL_RUN_STATES, MachineState, NodeStatus, RunState
from domain.unfinished import Unfinished, unfinished
from profiles.kinds.base import OnFailure

RETRYABLE_ACTIONS = ("create", "join", "clean")


class RetryFrom(StrEnum):
    """Where a retry begins."""

    STOPPED = "stopped"  # at the step where the run stopped; what was done before is not done again
    START = "start"  # at the first step, with the same plan


@dataclass(frozen=True, slots=True)
class Left:
    """A run that is not retried, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Retry:
    """What a retry put in."""

    operation_id: uuid.UUID
    retried: list[str]
    left: list[Left]


async def retry_operation(
    session: AsyncSession,
    operation: Operation,
    *,
    actor: str,
    only: Collection[Unfinished] = frozenset(Unfinished),
    names: Sequence[str] | None = None,
    begin: RetryFrom = RetryFrom.STOPPED,
    request_id: str | None = None,
) -> Retry:
    """Retries the ended runs of an operation whose kind is in `only`, of all nodes or of those in `names`.

    The operation itself need not have ended. Raises Refusal: CONFLICT for a used request id, INVALID_INPUT
    for names it is not about, INVALID_STATE when nothing is left to retry, with every reason.
    """
    new_id = uuid.uuid4()
    if request_id is not None:
        await claim_request_id(
            session,
            operation_id=new_id,
            tenant_id=operation.tenant_id,
            request_id=request_id,
            action=operation.action,
            actor=actor,
            cluster_id=operation.cluster_id,
        )
    await session.refresh(operation, with_for_update=True)
    await check_names(session, operation, names)
    if operation.action not in RETRYABLE_ACTIONS:
        raise invalid_state(f"a {operation.action} cannot be retried; {', '.join(RETRYABLE_ACTIONS)} can")
    wanted, left = await _chosen(session, operation, only, names)
    if not wanted:
        reasons = "; ".join(f"{one.name}: {one.reason}" for one in left[:20])
        raise invalid_state("there is nothing to retry" + (f": {reasons}" if reasons else ""))
    await submit_operation(
        session,
        operation_id=new_id,
        tenant_id=operation.tenant_id,
        action=operation.action,
        actor=actor,
        runs=await _again(session, wanted, begin, actor),
        request_id=request_id,
        cluster_id=operation.cluster_id,
        machine_id=operation.machine_id,
        retry_of=operation.id,
    )
    return Retry(new_id, [run.name for run, _ in wanted], left)


async def _chosen(
    session: AsyncSession,
    operation: Operation,
    only: Collection[Unfinished],
    names: Sequence[str] | None,
) -> tuple[list[tuple[Run, Node | Machine]], list[Left]]:
    """The runs to retry with what they are for, locked by id; and those that are left alone."""
    query = select(Run).where(Run.operation_id == operation.id)
    if names is not None:
        query = query.where(one_of(Run.name, names))
    runs = list(await session.scalars(query.order_by(Run.position)))
    subjects = await _lock_subjects(session, runs)
    overtaken = await _overtaken(session, runs)
    chosen: list[tuple[Run, Node | Machine]] = []
    left: list[Left] = []
    for run in runs:
        subject = subjects[run.node_id or run.machine_id]
        reason = _reason_to_leave(run, subject, only, overtaken=run.id in overtaken)
        if reason is None:
            chosen.append((run, subject))
        elif run.state != RunState.SUCCEEDED or names is not None:
            left.append(Left(run.name, reason))
    return chosen, left


async def _lock_subjects(
    session: AsyncSession, runs: Sequence[Run]
) -> dict[uuid.UUID | str | None, Node | Machine]:
    fresh = {"populate_existing": True}
    nodes = await session.scalars(
        select(Node)
        .where(one_of(Node.id, [run.node_id for run in runs if run.node_id]))
        .order_by(Node.id)
        .with_for_update()
        .execution_options(**fresh)
    )
    subjects: dict[uuid.UUID | str | None, Node | Machine] = {node.id: node for node in nodes}
    machines = await session.scalars(
        select(Machine)
        .where(one_of(Machine.id, [run.machine_id for run in runs if run.machine_id]))
        .order_by(Machine.id)
        .with_for_update()
        .execution_options(**fresh)
    )
    return subjects | {machine.id: machine for machine in machines}


async def _overtaken(session: AsyncSession, runs: Sequence[Run]) -> set[uuid.UUID]:
    """Those of machines' runs after which another run was about the machine, or held it for a node.

    A machine has no generation. Without this an old join, retried, would bring a machine back to `ready` that
    has failed to be cleaned since.
    """
    later = aliased(Run)
    newer = exists().where(
        later.created_at > Run.created_at,
        or_(later.machine_id == Run.machine_id, later.id == Claim.run_id),
    )
    return set(
        await session.scalars(
            select(Run.id)
            .join(Claim, Claim.machine_id == Run.machine_id)
            .where(one_of(Run.id, [run.id for run in runs if run.machine_id]), newer)
        )
    )


def _reason_to_leave(
    run: Run, subject: Node | Machine, only: Collection[Unfinished], *, overtaken: bool
) -> str | None:
    """None for a run that is retried."""
    if RunState(run.state) not in FINAL_RUN_STATES:
        return f"its run is {run.state}"
    card = FailureCard.model_validate(run.card) if run.card else None
    kind = unfinished(
        RunState(run.state), card.failure_class if card else None, claimed=run.claim_token is not None
    )
    if kind is None:
        return f"its run {run.state}" if run.state == RunState.SUCCEEDED else f"its run was {run.state}"
    if isinstance(subject, Node):
        if subject.generation != run.generation:
            return f"the node has moved on since: it is {subject.status}"
        if NodeStatus(subject.status) not in (NodeStatus.FAILED, NodeStatus.UNAVAILABLE):
            return f"the node is {subject.status}"
    elif overtaken:
        return f"the machine has been worked on since: it is {subject.state}"
    elif MachineState(subject.state) is not MachineState.FAILED:
        return f"the machine is {subject.state}"
    if kind not in only:
        return f"its run is {kind}, which is not asked for"
    return None


async def _again(
    session: AsyncSession,
    wanted: Sequence[tuple[Run, Node | Machine]],
    begin: RetryFrom,
    actor: str,
) -> list[NewRun]:
    stopped = await _stopped_at(session, [run for run, _ in wanted])
    runs = []
    for run, subject in wanted:
        first = stopped[run.id] if begin is RetryFrom.STOPPED else 0
        if isinstance(subject, Node):
            _wake_node(subject, actor)
            generation = subject.generation
        else:
            generation = 1
            _wake_machine(subject, run.action, actor)
        runs.append(
            NewRun(
                name=run.name,
                generation=generation,
                node_id=run.node_id,
                machine_id=run.machine_id,
                retry_of=run.id,
                plan_digest=run.plan_digest,
                first_step=first,
            )
        )
    return runs


def _wake_node(node: Node, actor: str) -> None:
    node.generation += 1
    move_node(node, NodeStatus.ACQUIRING, f"waiting to be tried again, as asked for by {actor}")


def _wake_machine(machine: Machine, action: str, actor: str) -> None:
    state = MachineState.JOINING if action == "join" else MachineState.CLEANING
    move_machine(machine, state, f"waiting to be tried again, as asked for by {actor}")


async def _stopped_at(session: AsyncSession, runs: Sequence[Run]) -> dict[uuid.UUID, int]:
    """The position of the first step that each run has still to do.

    Steps run in their order, so the last one that began decides: it is done when its last attempt succeeded,
    or when it failed for good and its profile says to go on.
    """
    stopped = {run.id: run.first_step for run in runs}
    last = await session.execute(
        select(StepRun.run_id, StepRun.position, StepRun.state)
        .where(one_of(StepRun.run_id, list(stopped)))
        .ext(distinct_on(StepRun.run_id))
        .order_by(StepRun.run_id, StepRun.position.desc(), StepRun.attempt.desc())
    )
    passed_over = await _passed_over(session, list(stopped))
    for run_id, position, state in last:
        done = state == RunState.SUCCEEDED or run_id in passed_over
        stopped[run_id] = position + 1 if done else position
    return stopped


async def _passed_over(session: AsyncSession, runs: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Those runs whose last step has used up its attempts and says `onFailure: continue`.

    Plans are read by the database, since each machine has its own and they may be long.
    """
    last = (
        select(StepRun.run_id, func.max(StepRun.position).label("position"))
        .where(one_of(StepRun.run_id, runs))
        .group_by(StepRun.run_id)
        .subquery()
    )
    step = cast(PlanRow.content, JSONB)["steps"][last.c.position]
    own = func.coalesce(
        StepRun.card["of_step"].astext.cast(Boolean),
        StepRun.card["failure_class"].astext.in_([str(one) for one in STEP_CLASSES]),
    )
    return set(
        await session.scalars(
            select(last.c.run_id)
            .join(StepRun, and_(StepRun.run_id == last.c.run_id, StepRun.position == last.c.position))
            .join(Run, Run.id == last.c.run_id)
            .join(PlanRow, PlanRow.digest == Run.plan_digest)
            .where(step["on_failure"].astext == OnFailure.CONTINUE)
            .group_by(last.c.run_id, last.c.position, PlanRow.content)
            .having(func.count().filter(own) >= cast(step["attempts"].astext, Integer))
        )
    )
