"""Where a run waits when a step says `onFailure: hold`: nothing is undone until a person decides."""

from uuid import UUID

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.signatures import HoldRef, HoldRequest, RecordActivities
    from domain.failures import FailureCard
    from domain.holds import Verdict
    from workflows import options
    from workflows.calls import call, refuse_cancelled


class Holding:
    """The holds of one run, counted; a decision about an earlier one is never taken for a later one."""

    def __init__(self) -> None:
        self._run_id: UUID | None = None
        self._number = 0
        self._verdicts: dict[int, Verdict] = {}

    def decide(self, ref: HoldRef, verdict: Verdict) -> None:
        """Takes a decision; of two about one hold the first stands."""
        if self._run_id is None or ref.run_id == self._run_id:
            self._verdicts.setdefault(ref.number, verdict)

    async def wait(self, run_id: UUID, name: str, card: FailureCard) -> Verdict:
        """Marks the run as held, and waits for as long as a person needs; never when it is cancelled."""
        refuse_cancelled()
        self._run_id = run_id
        self._number += 1
        number = self._number
        await call(
            RecordActivities.hold_run,
            HoldRequest(run_id=run_id, number=number, card=card),
            options.RECORD,
            f"hold {name} for a person: {card.message}",
        )
        refuse_cancelled()
        details = workflow.get_current_details()
        workflow.set_current_details(f"{name} is held: {card.text()}")
        await workflow.wait_condition(lambda: number in self._verdicts)
        workflow.set_current_details(details)
        return self._verdicts[number]
