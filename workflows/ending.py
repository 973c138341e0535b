"""How the runs of nodes and machines end without success: with proof after a cancel, and always recorded."""

import asyncio
from typing import NoReturn

from temporalio import workflow
from temporalio.exceptions import FailureError

with workflow.unsafe.imports_passed_through():
    from activities.signatures import MachineTask, RecordActivities, RunEnd, RunHeader, StepActivities
    from domain.failures import FailureCard, FailureClass
    from domain.states import RunState
    from workflows import options
    from workflows.calls import call, cancelled_by, uncut
    from workflows.failures import current_card, failure, note

# How the classes of failures that are somebody's decision end a run; every other one fails it.
_ENDS = {
    FailureClass.SUPERSEDED: RunState.SUPERSEDED,
    FailureClass.CANCELLED: RunState.CANCELED,
}


async def end_without_success(
    run: RunHeader, task: MachineTask | None, error: FailureError | asyncio.CancelledError
) -> NoReturn:
    """Records how the run ended, and raises it. `task` names its machine, once it has claimed one.

    Raises CancelledError after a cancel, else the failure with its card.
    """
    if cancelled_by(error):
        # Whatever an activity met after the cancel was asked for: Temporal does not try it again then, so
        # its failure says nothing of the step. Proof and record come all the same.
        await uncut(_end_cancelled(run, task))
        raise asyncio.CancelledError from error
    card = current_card(error) if isinstance(error, FailureError) else note(FailureClass.INTERNAL, str(error))
    if card.failure_class is FailureClass.CANCELLED and run.action != "terminate":
        # The activity learnt of it from the records; the workflow's own cancel is still on its way.
        await uncut(_end_cancelled(run, task))
        raise failure(card) from error
    # A cancel that comes now is too late: how the run ended is known, and is not to be lost.
    await uncut(_record_end(run, _ENDS.get(card.failure_class, RunState.FAILED), card))
    raise failure(card) from error


async def _end_cancelled(run: RunHeader, task: MachineTask | None) -> None:
    if task is not None:
        await call(
            StepActivities.confirm_cancel,
            task,
            options.confirm(),
            f"prove that no step of {run.name} is left on its machine",
        )
    card = note(FailureClass.CANCELLED, f"{run.action} of {run.name} was cancelled")
    await _record_end(run, RunState.CANCELED, card)


async def _record_end(run: RunHeader, state: RunState, card: FailureCard) -> None:
    await call(
        RecordActivities.end_run,
        RunEnd(run_id=run.run_id, state=state, card=card),
        options.RECORD,
        f"record that {run.action} of {run.name} ended as {state}",
    )
