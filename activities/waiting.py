"""Telling callers what a run waits for while an activity is tried again and again."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from sqlalchemy.exc import SQLAlchemyError
from temporalio import activity

from activities.ssh.errors import SshError
from database.runs import MachineClaimedError
from database.unit_of_work import Database
from database.waiting import note_waiting
from providers.base import ProviderError

# The second try tells, and then every tenth: whoever waits sees it go on, and the records stay quiet.
_FIRST, _EVERY = 2, 10


async def tell(database: Database, run_id: uuid.UUID, reason: str | None) -> None:
    """Notes what a run waits for, None once it gets on. Best effort: nothing depends on it."""
    try:
        async with database.begin() as session:
            await note_waiting(session, run_id, reason)
    except (SQLAlchemyError, OSError) as error:
        activity.logger.warning("what the run waits for was not noted: %s", error)


@asynccontextmanager
async def tells_waiting(database: Database, run_id: uuid.UUID) -> AsyncIterator[None]:
    """Around one try of an activity that is tried until a machine answers, or is free."""
    info = activity.info()
    try:
        yield
    except (SshError, ProviderError, MachineClaimedError) as error:
        if info.attempt % _EVERY == _FIRST:
            since = clock(info.scheduled_time)
            await tell(database, run_id, f"waiting since {since}, tried {info.attempt} times: {error}")
        raise
    if info.attempt > _FIRST:
        await tell(database, run_id, None)


def clock(moment: datetime) -> str:
    """A time of day that means the same to everybody: `03:02:11 UTC`."""
    return f"{moment.astimezone(UTC):%H:%M:%S} UTC"


def ago(seconds: float) -> str:
    """The clock's time so many seconds ago."""
    return clock(datetime.now(UTC) - timedelta(seconds=seconds))
