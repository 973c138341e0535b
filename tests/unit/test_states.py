"""The tables of states as graphs: nothing is a dead end, and what may not follow is refused."""

import itertools
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

import pytest

from domain.states import (
    MACHINE_PASSING,
    MACHINE_TRANSITIONS,
    NODE_PASSING,
    NODE_STATE,
    NODE_TRANSITIONS,
    IllegalTransitionError,
    MachineState,
    NodeStatus,
    check_machine_transition,
    check_node_transition,
)

S = TypeVar("S", bound=StrEnum)


def within_reach(table: Mapping[S, frozenset[S]], start: S) -> set[S]:
    """Every state that can follow, sooner or later, and the one to begin with."""
    found, left = {start}, [start]
    while left:
        fresh = table[left.pop()] - found
        found |= fresh
        left += fresh
    return found


def test_every_state_has_its_row() -> None:
    assert NODE_TRANSITIONS.keys() == NODE_STATE.keys() == set(NodeStatus)
    assert MACHINE_TRANSITIONS.keys() == set(MachineState)


def test_every_state_can_be_come_to() -> None:
    assert within_reach(NODE_TRANSITIONS, NodeStatus.OFF) == set(NodeStatus)
    assert within_reach(MACHINE_TRANSITIONS, MachineState.JOINING) == set(MachineState)


@pytest.mark.parametrize("status", NodeStatus)
def test_a_node_can_be_terminated_in_any_status_and_be_had_again_after_it(status: NodeStatus) -> None:
    if status not in (NodeStatus.TERMINATING, NodeStatus.TERMINATED):
        assert NodeStatus.TERMINATING in NODE_TRANSITIONS[status]
    assert {NodeStatus.TERMINATED, NodeStatus.READY} <= within_reach(NODE_TRANSITIONS, status)


@pytest.mark.parametrize("state", MachineState)
def test_a_machine_is_of_use_again_or_retired(state: MachineState) -> None:
    reached = within_reach(MACHINE_TRANSITIONS, state)
    assert MachineState.RETIRED in reached
    assert state in (MachineState.RETIRING, MachineState.RETIRED) or MachineState.READY in reached


def test_what_must_end_by_itself_goes_where_its_table_lets_it() -> None:
    for status, passing in NODE_PASSING.items():
        assert passing.failed in NODE_TRANSITIONS[status]
    for state, passing in MACHINE_PASSING.items():
        assert passing.failed in MACHINE_TRANSITIONS[state]


@pytest.mark.parametrize(("before", "after"), list(itertools.product(NodeStatus, repeat=2)))
def test_a_node_goes_where_its_table_says_and_nowhere_else(before: NodeStatus, after: NodeStatus) -> None:
    if after in NODE_TRANSITIONS[before]:
        check_node_transition(before, after)
    else:
        with pytest.raises(IllegalTransitionError, match=f"from {before} to {after}"):
            check_node_transition(before, after)


@pytest.mark.parametrize(("before", "after"), list(itertools.product(MachineState, repeat=2)))
def test_a_machine_goes_where_its_table_says_and_nowhere_else(
    before: MachineState, after: MachineState
) -> None:
    if after in MACHINE_TRANSITIONS[before]:
        check_machine_transition(before, after)
    else:
        with pytest.raises(IllegalTransitionError, match=f"from {before} to {after}"):
            check_machine_transition(before, after)
