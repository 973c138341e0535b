"""What follows from a failure's class, and how its card reads."""

from datetime import UTC, datetime

import pytest

from domain.failures import POLICIES, FailureClass, failure_card

# Tried again by themselves; of the steps' own failures the profile's `retry` decides.
RETRIED = {
    FailureClass.CONNECT,
    FailureClass.LOST_MACHINE,
    FailureClass.PROVIDER,
    FailureClass.CAPACITY,
    FailureClass.QUOTA,
}


@pytest.mark.parametrize("failure_class", FailureClass)
def test_every_class_says_what_to_do_and_whether_it_is_tried_again(failure_class: FailureClass) -> None:
    made = failure_card(failure_class, "it broke", seen=datetime.now(UTC))
    assert made.retryable is POLICIES[failure_class].retried is (failure_class in RETRIED)
    assert made.text() == f"{failure_class}: it broke. {made.action}"
    assert made.action


def test_a_step_that_was_attempted_again_says_so() -> None:
    def text(attempt: int) -> str:
        made = failure_card(
            FailureClass.EXIT, "exited 3", seen=datetime.now(UTC), step="tune", attempt=attempt
        )
        return made.text()

    assert text(1).startswith("exit: step tune: exited 3.")
    assert text(3).startswith("exit: step tune, attempt 3: exited 3.")


def test_a_failure_that_says_nothing_is_named_by_its_class() -> None:
    made = failure_card(FailureClass.SIGNAL, " \n", seen=datetime.now(UTC))
    assert made.message == "failed with class signal"
