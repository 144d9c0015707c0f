"""Alembic migrations of the SQL tables, numbered."""

HEAD = "0019"
"""The newest migration (a test compares it with the versions)."""
