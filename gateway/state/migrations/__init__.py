"""Alembic migrations of the SQL tables, numbered."""

HEAD = "0018"
"""The newest migration (a test compares it with the versions)."""
