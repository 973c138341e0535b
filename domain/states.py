"""States as tables: what may follow what, how long a passing state may last, and where it then goes."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class IllegalTransitionError(ValueError):
    """A change of state that the table does not allow."""


class RunState(StrEnum):
    """One enum for everything that runs: operations, node runs, machine runs, steps."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    PARTIALLY_SUCCEEDED = "partially_succeeded"
    FAILED = "failed"
    HELD = "held"
    CANCELING = "canceling"
    CANCEL_UNCONFIRMED = "cancel_unconfirmed"
    CANCELED = "canceled"
    SUPERSEDED = "superseded"


FINAL_RUN_STATES = frozenset(
    {
        RunState.SUCCEEDED,
        RunState.PARTIALLY_SUCCEEDED,
        RunState.FAILED,
        RunState.CANCELED,
        RunState.SUPERSEDED,
    }
)


# A run in one of these is being ended; nothing new may be begun for it.
ENDING_RUN_STATES = frozenset({RunState.CANCELING, RunState.CANCEL_UNCONFIRMED})


def combined_state(results: Mapping[RunState, int], *, canceled: bool = False) -> RunState:
    """The final state of an operation whose runs ended as counted in `results`.

    `canceled`: its end was asked for, so it is `canceled` as soon as that cut one of its runs short.
    """
    good = results.get(RunState.SUCCEEDED, 0)
    total = sum(results.values())
    if total == good:
        return RunState.SUCCEEDED
    if canceled and results.get(RunState.CANCELED):
        return RunState.CANCELED
    if good:
        return RunState.PARTIALLY_SUCCEEDED
    for state in (RunState.CANCELED, RunState.SUPERSEDED):
        if results.get(state, 0) == total:
            return state
    return RunState.FAILED


class NodeStatus(StrEnum):
    """A cluster node's fine-grained status, in the cluster API's words."""

    OFF = "Off"
    ACQUIRING = "Acquiring"
    PREPARING = "Preparing"
    READY = "Ready"
    FAILED = "Failed"
    UNAVAILABLE = "Unavailable"
    DEALLOCATING = "Deallocating"
    DEALLOCATED = "Deallocated"
    TERMINATING = "Terminating"
    TERMINATED = "Terminated"


class TargetState(StrEnum):
    """What is wanted of a cluster node."""

    OFF = "Off"
    STARTED = "Started"
    DEALLOCATED = "Deallocated"
    TERMINATED = "Terminated"


# The coarse State that belongs to each status.
NODE_STATE: dict[NodeStatus, str] = {
    NodeStatus.OFF: "Off",
    NodeStatus.ACQUIRING: "Starting",
    NodeStatus.PREPARING: "Starting",
    NodeStatus.READY: "Started",
    NodeStatus.FAILED: "Error",
    NodeStatus.UNAVAILABLE: "Error",
    NodeStatus.DEALLOCATING: "Stopping",
    NodeStatus.DEALLOCATED: "Deallocated",
    NodeStatus.TERMINATING: "Terminating",
    NodeStatus.TERMINATED: "Terminated",
}


class MachineState(StrEnum):
    """A machine's state; `booked` is derived from bookings and is none of them."""

    JOINING = "joining"
    VERIFYING = "verifying"
    READY = "ready"
    PROVISIONING = "provisioning"
    STOPPED = "stopped"
    CLEANING = "cleaning"
    MAINTENANCE = "maintenance"
    FAILED = "failed"
    RETIRING = "retiring"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True)
class Passing:
    """A state that must end by itself: `deadline` is how long it may last, `failed` what it is then.

    Transitions record the deadline. Today the runs keep it, since they bound every wait and step; a sweep
    that holds records against clocks is still to come.
    """

    deadline: timedelta
    failed: StrEnum


_N, _M = NodeStatus, MachineState

NODE_TRANSITIONS: dict[NodeStatus, frozenset[NodeStatus]] = {
    _N.OFF: frozenset({_N.ACQUIRING, _N.TERMINATING}),
    _N.ACQUIRING: frozenset({_N.PREPARING, _N.FAILED, _N.UNAVAILABLE, _N.TERMINATING}),
    _N.PREPARING: frozenset({_N.READY, _N.FAILED, _N.UNAVAILABLE, _N.TERMINATING}),
    _N.READY: frozenset({_N.PREPARING, _N.UNAVAILABLE, _N.DEALLOCATING, _N.TERMINATING}),
    _N.FAILED: frozenset({_N.ACQUIRING, _N.PREPARING, _N.TERMINATING}),
    _N.UNAVAILABLE: frozenset({_N.READY, _N.ACQUIRING, _N.PREPARING, _N.TERMINATING}),
    _N.DEALLOCATING: frozenset({_N.DEALLOCATED, _N.FAILED, _N.TERMINATING}),
    _N.DEALLOCATED: frozenset({_N.ACQUIRING, _N.PREPARING, _N.TERMINATING}),
    # Terminating cannot fail: a machine that cannot be cleaned goes its own way and never blocks a name.
    _N.TERMINATING: frozenset({_N.TERMINATED}),
    _N.TERMINATED: frozenset({_N.ACQUIRING}),
}

NODE_PASSING: dict[NodeStatus, Passing] = {
    _N.ACQUIRING: Passing(timedelta(minutes=30), _N.FAILED),
    _N.PREPARING: Passing(timedelta(hours=24), _N.FAILED),
    _N.DEALLOCATING: Passing(timedelta(hours=1), _N.FAILED),
    _N.TERMINATING: Passing(timedelta(hours=24), _N.TERMINATED),
}

MACHINE_TRANSITIONS: dict[MachineState, frozenset[MachineState]] = {
    _M.JOINING: frozenset({_M.VERIFYING, _M.FAILED}),
    _M.VERIFYING: frozenset({_M.READY, _M.FAILED}),
    _M.READY: frozenset({_M.PROVISIONING, _M.STOPPED, _M.CLEANING, _M.MAINTENANCE, _M.RETIRING, _M.FAILED}),
    _M.PROVISIONING: frozenset({_M.READY, _M.FAILED}),
    _M.STOPPED: frozenset({_M.READY, _M.CLEANING, _M.MAINTENANCE, _M.FAILED}),
    _M.CLEANING: frozenset({_M.READY, _M.FAILED}),
    _M.MAINTENANCE: frozenset({_M.READY, _M.STOPPED, _M.FAILED, _M.RETIRING}),
    _M.FAILED: frozenset({_M.JOINING, _M.PROVISIONING, _M.CLEANING, _M.MAINTENANCE, _M.RETIRING}),
    _M.RETIRING: frozenset({_M.RETIRED, _M.FAILED}),
    _M.RETIRED: frozenset(),
}

MACHINE_PASSING: dict[MachineState, Passing] = {
    _M.JOINING: Passing(timedelta(minutes=30), _M.FAILED),
    _M.VERIFYING: Passing(timedelta(minutes=30), _M.FAILED),
    _M.PROVISIONING: Passing(timedelta(hours=24), _M.FAILED),
    _M.CLEANING: Passing(timedelta(hours=4), _M.FAILED),
    _M.RETIRING: Passing(timedelta(hours=4), _M.FAILED),
}


def check_node_transition(before: NodeStatus, after: NodeStatus) -> None:
    """Raises IllegalTransitionError unless the table has `before` → `after`."""
    if after not in NODE_TRANSITIONS[before]:
        raise IllegalTransitionError(f"a node cannot go from {before} to {after}")


def check_machine_transition(before: MachineState, after: MachineState) -> None:
    """Raises IllegalTransitionError unless the table has `before` → `after`."""
    if after not in MACHINE_TRANSITIONS[before]:
        raise IllegalTransitionError(f"a machine cannot go from {before} to {after}")
