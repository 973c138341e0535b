"""Brings the schema up to date: Alembic under one advisory lock, as the owner of the tables."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine

# Two starters at once must not migrate at once; any constant will do.
_MIGRATION_LOCK = 0x6272696E677570


def alembic_config(connection: Connection, app_role: str) -> Config:
    """Alembic's configuration over an open connection."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    config.attributes["app_role"] = app_role
    return config


async def upgrade(owner_url: str, app_role: str) -> None:
    """Runs every pending migration; idempotent."""
    engine = create_async_engine(owner_url)
    try:
        async with engine.begin() as connection:
            await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
            await connection.run_sync(lambda sync: command.upgrade(alembic_config(sync, app_role), "head"))
    finally:
        await engine.dispose()
