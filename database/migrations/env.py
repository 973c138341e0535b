"""Runs migrations as the owner role, inside the connection that the caller hands over."""

from alembic import context
from sqlalchemy import Connection

from database.tables import Base


def run() -> None:
    """All pending migrations in one transaction."""
    connection: Connection = context.config.attributes["connection"]
    context.configure(connection=connection, target_metadata=Base.metadata, compare_type=True)
    with context.begin_transaction():
        context.run_migrations()


run()
