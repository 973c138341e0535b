"""A real database and a real Temporal server, on which no worker runs."""

from tests.database.conftest import database, database_urls, world
from tests.fixtures.postgres import postgres_server
from tests.fixtures.temporal import time_skipping

__all__ = ["database", "database_urls", "postgres_server", "time_skipping", "world"]
