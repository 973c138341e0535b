"""Changes of state on rows: checked against the tables in `domain.states`, with the new deadline set.

The rows must be locked by the caller. A transition always replaces the old deadline.
"""

from datetime import UTC, datetime

from database.tables import Machine, Node, Run
from domain.failures import FailureCard
from domain.states import (
    MACHINE_PASSING,
    NODE_PASSING,
    MachineState,
    NodeStatus,
    RunState,
    check_machine_transition,
    check_node_transition,
)


def move_node(node: Node, status: NodeStatus, message: str) -> None:
    """Moves a node; raises IllegalTransitionError when the table does not allow it."""
    check_node_transition(NodeStatus(node.status), status)
    now = datetime.now(UTC)
    passing = NODE_PASSING.get(status)
    node.status = status
    node.status_since = now
    node.status_deadline = now + passing.deadline if passing else None
    node.message = message
    node.card = None
    node.updated_at = now


def move_machine(machine: Machine, state: MachineState, message: str) -> None:
    """Moves a machine; raises IllegalTransitionError when the table does not allow it."""
    check_machine_transition(MachineState(machine.state), state)
    now = datetime.now(UTC)
    passing = MACHINE_PASSING.get(state)
    machine.state = state
    machine.state_since = now
    machine.state_deadline = now + passing.deadline if passing else None
    machine.message = message
    machine.version += 1


def close_run(run: Run, state: RunState, card: FailureCard | None) -> None:
    """Ends a run."""
    run.state = state
    run.waiting = None
    run.card = card.model_dump(mode="json") if card else None
    run.ended_at = datetime.now(UTC)
