"""Step records: logs without a gap or a repeat, whoever writes them, and ends that stand."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from sqlalchemy import select

from database.steps import (
    CHUNK,
    STDERR,
    STDOUT,
    StaleWriterError,
    StepEnd,
    append_log,
    begin_step,
    end_step,
    log_tail,
    take_over_open_steps,
)
from database.tables import LogChunk, Run, StepRun
from domain.failures import FailureClass, failure_card
from domain.states import RunState
from tests.database.scenes import created
from tests.database.world import World

EVERYTHING = 1_000_000


async def begin(world: World, run: Run, machine: str, attempt: int = 1) -> StepRun:
    async with world.database.begin() as session:
        return await begin_step(
            session, run_id=run.id, position=0, attempt=attempt, name="one", uses="command", machine=machine
        )


async def step_of(world: World) -> StepRun:
    """A step that just began on a new node's machine."""
    run, node = await created(world)
    return await begin(world, run, str(node.machine_id))


async def append(world: World, step: StepRun, start: int, data: bytes, stream: int = STDOUT) -> None:
    async with world.database.begin() as session:
        await append_log(session, step, stream, start, data)


async def end(world: World, step: StepRun, ending: StepEnd) -> None:
    async with world.database.begin() as session:
        await end_step(session, step, ending)


async def tail(world: World, step: StepRun, limit: int = EVERYTHING, stream: int = STDOUT) -> bytes:
    async with world.database.begin() as session:
        return await log_tail(session, step, stream, limit)


async def chunks(world: World, step: StepRun) -> Sequence[LogChunk]:
    async with world.database.begin() as session:
        rows = await session.scalars(
            select(LogChunk).where(LogChunk.step_run_id == step.id).order_by(LogChunk.start)
        )
        return rows.all()


async def test_an_attempt_that_begins_twice_has_one_record(world: World) -> None:
    run, node = await created(world)
    first = await begin(world, run, str(node.machine_id))
    assert (await begin(world, run, str(node.machine_id))).id == first.id
    assert (await begin(world, run, str(node.machine_id), attempt=2)).id != first.id


@pytest.mark.parametrize("start", [0, 4, 6], ids=["at the start", "one byte back", "past a gap"])
async def test_a_writer_at_the_wrong_place_is_refused_and_stores_nothing(world: World, start: int) -> None:
    step = await step_of(world)
    await append(world, step, 0, b"hello")
    with pytest.raises(StaleWriterError):
        await append(world, step, start, b"again")
    assert await tail(world, step) == b"hello"
    assert (await world.one(select(StepRun).where(StepRun.id == step.id))).stdout_size == 5
    await append(world, step, 5, b" world")
    assert await tail(world, step) == b"hello world"


async def test_of_two_writers_at_one_place_one_appends(world: World) -> None:
    step = await step_of(world)
    writers = [append(world, step, 0, text) for text in (b"first", b"other")]
    results = await asyncio.gather(*writers, return_exceptions=True)
    (late,) = [result for result in results if result is not None]
    assert isinstance(late, StaleWriterError)
    assert await tail(world, step) in (b"first", b"other")


async def test_the_streams_of_a_step_end_at_their_own_places(world: World) -> None:
    step = await step_of(world)
    await append(world, step, 0, b"to stdout")
    await append(world, step, 0, b"to", STDERR)
    with pytest.raises(StaleWriterError):
        await append(world, step, 9, b" stderr", STDERR)
    assert (await tail(world, step), await tail(world, step, stream=STDERR)) == (b"to stdout", b"to")


async def test_bytes_are_kept_in_chunks_of_at_most_64_kib(world: World) -> None:
    assert CHUNK == 65_536
    step = await step_of(world)
    data = bytes(range(256)) * 520
    await append(world, step, 0, b"abc")
    await append(world, step, 3, data)
    kept = await chunks(world, step)
    assert [(chunk.start, len(chunk.data)) for chunk in kept] == [
        (0, 3),
        (3, 65_536),
        (65_539, 65_536),
        (131_075, 2_048),
    ]
    assert b"".join(chunk.data for chunk in kept) == b"abc" + data


@pytest.mark.parametrize("limit", [1, 3, 4, 65_540, 65_543, EVERYTHING])
async def test_a_tail_is_the_last_bytes_wherever_the_chunks_end(world: World, limit: int) -> None:
    step = await step_of(world)
    data = bytes(range(256)) * 256 + b"abc"
    await append(world, step, 0, data)
    await append(world, step, len(data), b"defg")
    assert await tail(world, step, limit) == (data + b"defg")[-limit:]


async def test_the_tail_of_an_empty_stream_is_empty(world: World) -> None:
    step = await step_of(world)
    await append(world, step, 0, b"on the other stream")
    assert await tail(world, step, stream=STDERR) == b""


async def test_the_first_record_of_a_steps_end_stands(world: World) -> None:
    step = await step_of(world)
    failed = StepEnd(
        state=RunState.FAILED,
        exit_status=1,
        signal=9,
        card=failure_card(FailureClass.EXIT, "late", seen=datetime.now(UTC)),
    )
    await end(world, step, StepEnd(state=RunState.SUCCEEDED, outcome="changed", exit_status=0))
    with pytest.raises(StaleWriterError):
        await end(world, step, failed)
    row = await world.one(select(StepRun).where(StepRun.id == step.id))
    assert (row.state, row.outcome, row.exit_status, row.signal, row.card) == (
        RunState.SUCCEEDED,
        "changed",
        0,
        None,
        None,
    )
    assert row.ended_at is not None


async def test_a_follower_that_another_has_followed_can_write_nothing(world: World) -> None:
    run, node = await created(world)
    late = await begin(world, run, str(node.machine_id))
    now = await begin(world, run, str(node.machine_id))
    for writing in (append(world, late, 0, b"late"), end(world, late, StepEnd(state=RunState.FAILED))):
        with pytest.raises(StaleWriterError):
            await writing
    await append(world, now, 0, b"now")
    async with world.database.begin() as session:
        (third,) = await take_over_open_steps(session, run.id)
    with pytest.raises(StaleWriterError):
        await append(world, now, 3, b" late")
    await end(world, third, StepEnd(state=RunState.CANCELED))
    assert await tail(world, third) == b"now"
    async with world.database.begin() as session:
        assert await take_over_open_steps(session, run.id) == []
