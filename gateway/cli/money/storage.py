"""Opens the database of the settings, for all commands that read or write it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from gateway.settings.gateway import Settings
from gateway.state.sql.database import Database


@contextmanager
def open_database(settings: Settings, *, existing: bool = False) -> Iterator[Database]:
    """Open the database of `settings`, and migrate it to the newest version. The database is closed at the end of the
    context. Raises ClickException if the database cannot be used.

    `existing`: whether a missing data directory is a mistake. If not, a missing data directory is created.
    """
    data = settings.paths.data
    if existing and settings.config.ledger.database_url is None and not data.exists():
        raise click.ClickException(
            f"{data}: there is no such directory. Give the gateway's directory with --data-dir, or start one with "
            "`thriftgate up`."
        )
    database = _database(settings)
    try:
        try:
            database.upgrade()
        except OSError as error:
            raise _unusable(data, error) from error
        yield database
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        where = "ledger.database_url" if settings.config.ledger.database_url else settings.paths.sqlite
        raise click.ClickException(f"The database of {where} cannot be used: {reason}.") from error
    finally:
        database.close()


def _database(settings: Settings) -> Database:
    data = settings.paths.data
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Database(settings.database_url)
    except OSError as error:
        raise _unusable(data, error) from error
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise click.ClickException(
            f"ledger.database_url: {error}; for PostgreSQL: pip install 'thriftgate[postgres]'."
        ) from error


def _unusable(data: Path, error: OSError) -> click.ClickException:
    return click.ClickException(
        f"{data}: cannot be used as data directory ({error.strerror}); give another --data-dir."
    )
