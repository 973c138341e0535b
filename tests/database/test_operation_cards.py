"""Why an operation as a whole did not succeed: one card, whatever became of its runs."""

import pytest
from temporalio.testing import ActivityEnvironment

from activities.records import Records
from activities.signatures import OperationRef
from database.tables import Operation, Run
from domain.failures import FailureCard, FailureClass
from domain.states import RunState
from domain.workflow_ids import operation_workflow_id
from tests.database import decisions as made
from tests.database.world import World
from workflows.client import connect


async def reason(world: World, operation: Operation) -> FailureCard | None:
    """The card of an operation that has ended by now."""
    await made.close(world, operation.id)
    ended = await made.operation(world, operation.id)
    assert ended.ended_at is not None
    return FailureCard.model_validate(ended.card) if ended.card else None


async def create(world: World, count: int) -> tuple[Operation, list[Run]]:
    """A create and its runs."""
    operation_id = await made.created_nodes(world, count)
    return await made.operation(world, operation_id), list((await made.runs_of(world, operation_id)).values())


async def succeed(world: World, *runs: Run) -> None:
    """Their nodes are ready."""
    for run in runs:
        await world.set(Run, Run.id == run.id, state=RunState.SUCCEEDED, claim_token=1)


@pytest.mark.parametrize(
    ("count", "good", "said"),
    [
        (1, 0, "its only run was cut short"),
        (3, 0, "3 of its 3 runs were cut short"),
        (3, 2, "1 of its 3 runs was cut short"),
    ],
)
async def test_a_cancelled_operation_says_by_whom_and_how_much_was_cut_short(
    world: World, count: int, good: int, said: str
) -> None:
    operation, runs = await create(world, count)
    await succeed(world, *runs[:good])
    await made.cancel(world, operation.id)
    card = await reason(world, operation)
    assert card is not None
    assert card.failure_class is FailureClass.CANCELLED
    assert card.message == f"the create was cancelled by {made.ACTOR}: {said}"
    assert card.workflow_id == operation_workflow_id(operation.id)
    assert card.machine is None


async def test_who_cancelled_single_runs_is_named(world: World) -> None:
    operation, runs = await create(world, 3)
    await succeed(world, runs[0])
    for run, actor in zip(runs[1:], ("eve", "adam"), strict=True):
        await made.cancel(world, operation.id, [run.name], actor=actor)
    card = await reason(world, operation)
    assert card is not None
    assert card.message == "the create was cancelled by adam, eve: 2 of its 3 runs were cut short"


async def test_a_failure_is_the_reason_of_what_nobody_cancelled_as_a_whole(world: World) -> None:
    operation, (first, second, third) = await create(world, 3)
    await made.cancel(world, operation.id, [first.name])
    await made.end(world, second, RunState.FAILED, made.card(FailureClass.CONNECT, "no answer"))
    await made.end(world, third, RunState.FAILED, made.card())
    card = await reason(world, operation)
    assert card == FailureCard.model_validate((await made.runs_of(world, operation.id))[second.name].card)


async def test_what_newer_operations_took_over_is_said_when_nothing_failed(world: World) -> None:
    operation, (run,) = await create(world, 1)
    await made.end(world, run, RunState.SUPERSEDED, made.card(FailureClass.SUPERSEDED, "node gpu-1 moved on"))
    card = await reason(world, operation)
    assert card is not None
    assert (card.failure_class, card.message) == (FailureClass.SUPERSEDED, "node gpu-1 moved on")


async def test_success_has_no_reason(world: World) -> None:
    operation, runs = await create(world, 2)
    await succeed(world, *runs)
    assert await reason(world, operation) is None


async def test_the_workflow_is_told_the_reason_in_a_line(world: World) -> None:
    operation, (run,) = await create(world, 1)
    await made.end(world, run, RunState.FAILED, made.card(message="no such package"))
    records = Records(world.database, await connect("127.0.0.1:1", "default", lazy=True), reach_tries=1)
    end = await ActivityEnvironment().run(records.end_operation, OperationRef(operation_id=operation.id))
    assert end.state is RunState.FAILED
    assert (end.reason or "").startswith("exit: step s3: no such package. ")
