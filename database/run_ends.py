"""How runs end without success, and what becomes of the node or machine that they were for."""

import uuid
from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from database.custody import hand_over_node
from database.events import record_event
from database.holding import lock_operation, settle_hold
from database.run_locks import RunCanceledError, SupersededError, lock_live_run
from database.steps import end_open_steps
from database.tables import PROVE, Machine, Node, Outbox, Run
from database.transitions import close_run, move_machine, move_node
from domain.failures import FailureCard, FailureClass, failure_card
from domain.states import FINAL_RUN_STATES, MachineState, NodeStatus, RunState
from domain.unfinished import UNREACHABLE_CLASSES
from domain.workflow_ids import operation_workflow_id


async def end_run(
    session: AsyncSession, run_id: uuid.UUID, state: RunState, card: FailureCard | None
) -> RunState:
    """Ends a run that did not succeed, and moves what it was for to a state that says so; idempotent.

    A run whose node has moved on ends as superseded whatever was asked. Returns the run's state.
    """
    known = (await session.execute(select(Run).where(Run.id == run_id))).scalar_one()
    if known.node_id is not None and known.action == "terminate":
        ended = await hand_over_node(session, run_id, card=card)
        # What they may have left is ended by the run that cleans the machine.
        await end_open_steps(session, run_id, RunState.FAILED, card)
        return ended
    # It may be what its operation is held for, which is locked before nodes and runs.
    operation = await lock_operation(session, run_id) if known.holds else None
    ended = await _end(session, known, state, card)
    await session.flush()
    if ended is RunState.SUPERSEDED:
        # By the run that took over.
        await end_open_steps(session, run_id, ended, card)
    elif ended is not RunState.SUCCEEDED and await end_open_steps(session, run_id, RunState.FAILED, card):
        session.add(Outbox(operation_id=known.operation_id, desired=PROVE, run_id=run_id))
    if operation is not None:
        await settle_hold(session, operation)
    return ended


async def _end(session: AsyncSession, known: Run, state: RunState, card: FailureCard | None) -> RunState:
    try:
        run, node = await lock_live_run(session, known.id)
    except (SupersededError, RunCanceledError) as error:
        await session.refresh(known)
        if RunState(known.state) not in FINAL_RUN_STATES:
            close_run(known, RunState.SUPERSEDED, _superseded(known, card, str(error)))
        return RunState(known.state)
    by = f" by {run.canceled_by}"
    if card is not None and state is RunState.CANCELED and run.canceled_by and not card.message.endswith(by):
        card = card.model_copy(update={"message": card.message + by})
    if node is not None:
        end_node_run(session, run, node, state, card)
    else:
        await _end_machine_run(session, run, state, card)
    return state


def _superseded(run: Run, card: FailureCard | None, message: str) -> FailureCard:
    """How a run that was overtaken ends, whatever it met on the way: cut short, it was mostly cancelled."""
    if card is not None and card.failure_class is FailureClass.SUPERSEDED:
        return card
    return failure_card(
        FailureClass.SUPERSEDED,
        message,
        seen=card.first_seen if card else datetime.now(UTC),
        machine=card.machine if card else None,
        workflow_id=card.workflow_id if card else operation_workflow_id(run.operation_id),
    )


def end_node_run(
    session: AsyncSession, run: Run, node: Node, state: RunState, card: FailureCard | None
) -> None:
    """Ends a live run of a node; both must be locked.

    A node on its way is then `Failed`, or `Unavailable` when its machine could not be reached. Either way it
    keeps machine and booking, and can be retried or terminated.
    """
    close_run(run, state, card)
    text = _text(run, state, card)
    if NodeStatus(node.status) in (NodeStatus.ACQUIRING, NodeStatus.PREPARING):
        lost = card is not None and card.failure_class in UNREACHABLE_CLASSES
        move_node(node, NodeStatus.UNAVAILABLE if lost else NodeStatus.FAILED, text)
        node.card = run.card
    _record(session, node.tenant_id, f"node/{node.id}", run, state, text)


async def _end_machine_run(
    session: AsyncSession, run: Run, state: RunState, card: FailureCard | None
) -> None:
    close_run(run, state, card)
    text = _text(run, state, card)
    machine = (
        await session.execute(select(Machine).where(Machine.id == run.machine_id).with_for_update())
    ).scalar_one()
    if MachineState(machine.state) is not MachineState.FAILED:
        move_machine(machine, MachineState.FAILED, text)
    _record(session, machine.tenant_id, f"machine/{machine.id}", run, state, text)


def _text(run: Run, state: RunState, card: FailureCard | None) -> str:
    return card.text() if card else f"{run.action} ended as {state}"


def _record(session: AsyncSession, tenant: str, subject: str, run: Run, state: RunState, text: str) -> None:
    record_event(
        session,
        tenant_id=tenant,
        type=f"{run.kind}.{run.action}.{state}",
        subject=subject,
        actor=f"run/{run.id}",
        message=text,
    )
