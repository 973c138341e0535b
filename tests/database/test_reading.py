"""Queries that read: logs by offset, pages by cursor, names by format."""

import uuid
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import insert, select

from database.log_queries import read_log
from database.naming import FreeNames, NameFormat
from database.operation_queries import list_steps
from database.pages import PageRequest
from database.refusals import Refusal
from database.set_requests import SetRequest
from database.sites import create_site, list_sites
from database.tables import LogChunk, Run, StepRun
from database.unit_of_work import Database
from tests.database.world import World, make_world


async def step_with_log(world: World, *chunks: bytes, ended: bool = True) -> tuple[int, uuid.UUID]:
    machines = await world.machines(1)
    done = await world.create([SetRequest("gpu", 1)])
    async with world.database.begin() as session:
        run = await session.scalar(select(Run.id).where(Run.operation_id == done.operation_id))
        assert run is not None
        step = StepRun(
            run_id=run,
            position=0,
            attempt=1,
            name="hello",
            uses="command",
            machine_id=machines[0],
            state="succeeded",
            ended_at=datetime.now(UTC) if ended else None,
            stdout_size=sum(map(len, chunks)),
        )
        session.add(step)
        await session.flush()
        place = 0
        for chunk in chunks:
            await session.execute(
                insert(LogChunk).values(
                    step_run_id=step.id, stream=1, start=place, day=datetime.now(UTC).date(), data=chunk
                )
            )
            place += len(chunk)
        return step.id, done.operation_id


async def read(world: World, step: int, offset: int, stream: str = "stdout") -> tuple[bytes, int, bool]:
    async with world.database.begin() as session:
        part = await read_log(session, world.tenant, step, stream, offset)
    return part.data, part.next_offset, part.ended


async def test_a_log_is_read_from_any_offset(world: World) -> None:
    step, _ = await step_with_log(world, b"hello ", b"world\n")
    assert await read(world, step, 0) == (b"hello world\n", 12, True)
    assert await read(world, step, 8) == (b"rld\n", 12, True)
    assert await read(world, step, 12) == (b"", 12, True)
    assert await read(world, step, 99) == (b"", 99, True)
    assert await read(world, step, 0, "stderr") == (b"", 0, True)


async def test_a_character_that_is_not_whole_yet_waits_for_the_next_read(world: World) -> None:
    step, _ = await step_with_log(world, b"caf\xc3", ended=False)
    assert await read(world, step, 0) == (b"caf", 3, False)


async def test_the_last_bytes_come_even_when_they_are_no_text(world: World) -> None:
    step, _ = await step_with_log(world, b"caf\xc3")
    assert await read(world, step, 0) == (b"caf\xc3", 4, True)


async def test_a_running_step_with_broken_text_never_stalls(world: World) -> None:
    step, _ = await step_with_log(world, b"\xc3", b"\xc3\xc3abc", ended=False)
    assert await read(world, step, 0) == (b"\xc3\xc3\xc3abc", 6, False)


async def test_a_long_log_comes_in_parts_of_at_most_a_mebibyte(world: World) -> None:
    chunks = [bytes([65 + n]) * 65_536 for n in range(20)]
    step, _ = await step_with_log(world, *chunks)
    whole, offset, ended, reads = b"", 0, False, 0
    while not ended:
        data, offset, ended = await read(world, step, offset)
        assert len(data) <= 1_048_576
        whole, reads = whole + data, reads + 1
    assert (whole, reads) == (b"".join(chunks), 2)


async def test_another_tenants_log_is_not_found(world: World, database: Database) -> None:
    step, _ = await step_with_log(world, b"secret")
    other = await make_world(database)
    with pytest.raises(Refusal, match="no step run"):
        await read(other, step, 0)


async def test_steps_are_listed_with_their_run(world: World) -> None:
    step, operation = await step_with_log(world, b"x")
    async with world.database.begin() as session:
        page = await list_steps(session, operation, PageRequest(1))
    found, run = page.rows[0]
    assert (found.id, run.name, page.next_cursor) == (step, "gpu-1", None)


async def test_pages_hold_every_row_once(world: World) -> None:
    async with world.database.begin() as session:
        for n in range(6):
            await create_site(
                session, tenant_id=world.tenant, actor="t", name=f"s-{n}", region="r", custom=True
            )
        names: list[str] = []
        cursor: str | None = None
        sizes = []
        while True:
            page = await list_sites(session, world.tenant, PageRequest(3, cursor))
            names += [site.name for site in page.rows]
            sizes.append(len(page.rows))
            cursor = page.next_cursor
            if cursor is None:
                break
    assert (sorted(names), sizes) == (["here", *(f"s-{n}" for n in range(6))], [3, 3, 1])


@pytest.mark.parametrize("cursor", ["x", "W10", "e30", "WyJhIiwiYiJd", "ÿ", "[]"])
async def test_a_cursor_of_no_list_is_refused(world: World, cursor: str) -> None:
    async with world.database.begin() as session:
        with pytest.raises(Refusal, match="nextCursor"):
            await list_sites(session, world.tenant, PageRequest(3, cursor))


@given(st.text(max_size=30))
def test_no_format_is_ever_interpreted(template: str) -> None:
    try:
        wanted = NameFormat(template)
    except Refusal:
        return
    for name in FreeNames(set()).take(wanted, 1, 3):
        assert "%" not in name
        assert 1 <= len(name) <= 63


@given(st.sets(st.integers(1, 12)), st.integers(1, 5), st.integers(1, 8))
def test_names_are_the_lowest_free_ones_from_the_offset(taken: set[int], offset: int, count: int) -> None:
    names = FreeNames({f"n-{number}" for number in taken}).take(NameFormat("n-%d"), offset, count)
    free = [number for number in range(offset, 40) if number not in taken]
    assert names == [f"n-{number}" for number in free[:count]]
