"""Alembic migrations; run them with `python -m database upgrade`."""
