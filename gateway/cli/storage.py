"""The database of the given settings, migrated and closed again: what every verb about figures needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gateway.settings.gateway import Settings
from gateway.state.sql import Database


@contextmanager
def open_database(settings: Settings) -> Iterator[Database]:
    """Raises SQLAlchemyError when it cannot be reached."""
    settings.paths.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    database = Database(settings.database_url)
    try:
        database.upgrade()
        yield database
    finally:
        database.close()
