"""Turns: a step gives its place up only while others may be waiting for it."""

import pytest

from activities.steps.slots import Slots


def test_a_step_keeps_its_place_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slots, "TURN", 0.0)
    slots = Slots(4)
    with slots.taken() as first, slots.taken():
        assert not first.over


def test_with_every_place_taken_a_step_gives_its_own_up_after_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slots = Slots(4)
    with slots.taken() as first, slots.taken(), slots.taken():
        assert slots.full
        assert not first.over, "not before its turn is over"
        monkeypatch.setattr(Slots, "TURN", 0.0)
        assert first.over
    assert not slots.full
