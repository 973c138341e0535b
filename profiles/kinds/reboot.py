"""`reboot`: restarts the machine, and ends when it has come back with a new boot id."""

from typing import Annotated, Literal

from profiles.kinds.base import Body, Disruption, StepBody, StepHeader, Strict, expects

# Without systemd there is no `systemctl`; in some images `reboot` only talks to it. One of them will do.
REBOOT = "reboot || systemctl reboot || shutdown -r now"


class RebootInput(Strict):
    """`check` exits 0 when no reboot is needed; after one it is asked again. Without it: always."""

    check: Body | None = None


class RebootStep(StepHeader):
    """Its timeout covers the way down, the boot, and the way back."""

    uses: Literal["reboot"]
    with_: RebootInput = RebootInput()
    disruption: Annotated[Literal[Disruption.REBOOT], expects("reboot, which is what the step does")] = (
        Disruption.REBOOT
    )

    def body(self) -> StepBody:
        """The command that every Debian has."""
        return StepBody(run=REBOOT, check=self.with_.check)
