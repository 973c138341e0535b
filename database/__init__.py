"""SQLAlchemy tables, queries and migrations; PostgreSQL only."""
