"""A used profile version never changes: proved against the database itself, whoever asks."""

import asyncio

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from cli.dev.postgres import DatabaseUrls
from database.profiles import find_profile, freeze_version, update_version
from database.refusals import Refusal, RefusalCode
from database.tables import ProfileVersion
from profiles.references import ProfileRef
from tests.database.world import World, canonical_content

STATEMENTS = [
    "UPDATE profile_versions SET content = '{}' WHERE profile_id = :p",
    "UPDATE profile_versions SET digest = 'sha256:0' WHERE profile_id = :p",
    "UPDATE profile_versions SET used_at = NULL WHERE profile_id = :p",
    "UPDATE profile_versions SET used_at = now() + interval '1 day' WHERE profile_id = :p",
    "UPDATE profile_versions SET number = 2 WHERE profile_id = :p",
    "DELETE FROM profile_versions WHERE profile_id = :p",
    "UPDATE profile_contents SET content = '{}' WHERE digest = :d",
    "DELETE FROM profile_contents WHERE digest = :d",
    "TRUNCATE profile_versions CASCADE",
    "TRUNCATE profile_contents CASCADE",
]


async def freeze(world: World) -> str:
    async with world.database.begin() as session:
        return await freeze_version(session, world.tenant, ProfileRef.parse(world.profile))


async def edit(world: World, content: str) -> None:
    async with world.database.begin() as session:
        profile = await find_profile(session, world.tenant, world.profile_id)
        await update_version(session, profile=profile, actor="t", number=1, content=content)


async def execute(url: str, statement: str, values: dict[str, str]) -> None:
    """One statement in a transaction of its own, with none of the application's code."""
    engine = create_async_engine(url)
    try:
        async with engine.begin() as connection:
            await connection.execute(text(statement), values)
    finally:
        await engine.dispose()


@pytest.mark.parametrize("role", ["owner", "app"])
@pytest.mark.parametrize("statement", STATEMENTS)
async def test_direct_sql_on_a_used_version_is_refused_for_the_owner_too(
    world: World, database_urls: DatabaseUrls, role: str, statement: str
) -> None:
    digest = await freeze(world)
    values = {"p": world.profile_id, "d": digest}
    used = {key: value for key, value in values.items() if f":{key}" in statement}
    with pytest.raises(DBAPIError) as refused:
        await execute(getattr(database_urls, role), statement, used)
    # The trigger's restrict_violation; the application lacks the right to begin with for some.
    assert getattr(refused.value.orig, "sqlstate", "") in (
        {"23001"} if role == "owner" else {"23001", "42501"}
    )
    kept = await world.fetch("SELECT content FROM profile_contents WHERE digest = :d", d=digest)
    assert kept == canonical_content()


async def test_flags_of_a_used_version_stay_free(world: World) -> None:
    await freeze(world)
    await world.set(
        ProfileVersion, ProfileVersion.profile_id == world.profile_id, deprecated_at=text("now()")
    )
    assert await world.count(
        ProfileVersion,
        ProfileVersion.profile_id == world.profile_id,
        ProfileVersion.deprecated_at.is_not(None),
    )


async def test_an_unused_version_can_still_be_changed(world: World) -> None:
    await edit(world, canonical_content("echo new"))
    await freeze(world)
    kept = await world.fetch(
        "SELECT c.content FROM profile_contents c JOIN profile_versions v USING (digest) "
        "WHERE v.profile_id = :p",
        p=world.profile_id,
    )
    assert kept == canonical_content("echo new")


async def test_an_edit_that_waits_for_a_first_use_is_refused(world: World) -> None:
    async with world.database.begin() as session:
        await freeze_version(session, world.tenant, ProfileRef.parse(world.profile))
        waiting = asyncio.create_task(edit(world, canonical_content("echo late")))
        await lock_waiter(world)
    with pytest.raises(Refusal) as refused:
        await waiting
    assert refused.value.code is RefusalCode.INVALID_STATE


async def test_a_first_use_that_waits_for_an_edit_sees_the_new_content(world: World) -> None:
    async with world.database.begin() as session:
        profile = await find_profile(session, world.tenant, world.profile_id)
        await update_version(
            session, profile=profile, actor="t", number=1, content=canonical_content("echo early")
        )
        waiting = asyncio.create_task(freeze(world))
        await lock_waiter(world)
    digest = await waiting
    kept = await world.fetch("SELECT content FROM profile_contents WHERE digest = :d", d=digest)
    assert kept == canonical_content("echo early")


async def test_racing_edits_and_first_uses_have_two_outcomes_only(world: World) -> None:
    content = canonical_content("echo raced")
    results = await asyncio.gather(
        *(edit(world, content) if n % 2 else freeze(world) for n in range(12)), return_exceptions=True
    )
    digests = {result for result in results if isinstance(result, str)}
    assert len(digests) == 1
    refused = [result for result in results if isinstance(result, Exception)]
    assert all(isinstance(one, Refusal) and one.code is RefusalCode.INVALID_STATE for one in refused)
    kept = await world.fetch("SELECT content FROM profile_contents WHERE digest = :d", d=digests.pop())
    assert kept in (content, canonical_content())


async def lock_waiter(world: World) -> None:
    """Returns once a backend of this database waits for a row that another holds."""
    async with asyncio.timeout(10):
        while not await world.fetch(  # noqa: ASYNC110  # the condition lies in another process
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ):
            await asyncio.sleep(0.01)
