"""`command`: shell text run by /bin/sh."""

from typing import Literal

from profiles.kinds.base import Body, StepBody, StepHeader, Strict


class CommandInput(Strict):
    """`run` changes the machine; `check` exits 0 when it needs no change."""

    run: Body
    check: Body | None = None


class CommandStep(StepHeader):
    """A step whose text is short enough to stand in the recipe."""

    uses: Literal["command"]
    with_: CommandInput

    def body(self) -> StepBody:
        """The text as written."""
        return StepBody(run=self.with_.run, check=self.with_.check)
