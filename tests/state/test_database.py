"""One door to SQL, the same for SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, insert, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as DatabaseTimeout
from sqlalchemy.schema import CreateIndex

from gateway.state.migrations import HEAD
from gateway.state.migrations.upgrade import configuration
from gateway.state.sql.database import Database
from gateway.state.sql.tables import audit, files, keys, ledger, metadata, name_partial_indexes, response_items


def note(action: str) -> dict[str, object]:
    return {"at": 1.0, "actor": "a", "action": action, "subject": "s", "detail": ""}


def count(connection: Connection) -> int:
    return connection.execute(select(func.count()).select_from(audit)).scalar_one()


def versions(connection: Connection) -> list[str]:
    return list(connection.execute(text("SELECT version_num FROM alembic_version")).scalars())


def test_an_empty_database_gets_the_tables_of_the_newest_migration(any_database: Database) -> None:
    with any_database.begin() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        assert versions(connection) == [HEAD]


def test_the_migrations_lead_to_the_same_tables(any_database: Database) -> None:
    with any_database.begin() as connection:
        metadata.drop_all(connection)
        connection.execute(text("DELETE FROM alembic_version"))
    any_database.upgrade()
    with any_database.begin() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        assert versions(connection) == [HEAD]


def test_indexes_that_leave_out_empty_values_do_so_on_both_databases() -> None:
    name_partial_indexes()
    for dialect in (sqlite.dialect(), postgresql.dialect()):
        made = {index.name: str(CreateIndex(index).compile(dialect=dialect)) for index in ledger.indexes}
        assert made["ix_ledger_session"].endswith("WHERE session <> ''")
        assert made["ix_ledger_supersedes"].endswith("WHERE supersedes <> ''")
        assert "WHERE" not in made["ix_ledger_team_at"]


def test_head_names_the_newest_migration() -> None:
    assert ScriptDirectory.from_config(configuration()).get_current_head() == HEAD


def test_upgrading_twice_changes_nothing(any_database: Database) -> None:
    with any_database.begin() as connection:
        connection.execute(insert(audit).values(note("kept")))
    any_database.upgrade()
    with any_database.read() as connection:
        assert count(connection) == 1


def test_keys_of_before_lineages_are_their_own(any_database: Database) -> None:
    key = {"id": "key_old", "digest": b"d", "team": "search", "name": "", "scopes": "inference", "created_at": 1.0}
    with any_database.begin() as connection:
        connection.execute(insert(keys).values(key))
        for name in ("lineage", "allowed_models"):
            connection.execute(text(f"ALTER TABLE keys DROP COLUMN {name}"))
        for name in (
            "waited_ms",
            "service_tier",
            "unpriced",
            "doubt",
            "above_ceiling",
            "agent",
            "traffic_class",
        ):  # all that later migrations add
            connection.execute(text(f"ALTER TABLE ledger DROP COLUMN {name}"))
        connection.execute(text("DROP INDEX ix_ledger_session"))
        for name in ("service_tier", "unpriced", "agent", "traffic_class"):
            connection.execute(text(f"ALTER TABLE ledger_sums DROP COLUMN {name}"))
        connection.execute(text("ALTER TABLE evidence DROP COLUMN traffic_class"))
        connection.execute(text("DROP TABLE class_trials"))
        for name in ("samples", "ledger_days"):
            connection.execute(text(f"DROP TABLE {name}"))
        for name in ("drained_workers", "orphaned_holds"):
            connection.execute(text(f"DROP TABLE {name}"))
        for name in ("files", "batches", "responses"):
            connection.execute(text(f"ALTER TABLE {name} DROP COLUMN owner"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0009'"))
    any_database.upgrade()
    with any_database.read() as connection:
        assert connection.execute(select(keys.c.lineage)).scalars().all() == ["key_old"]


def test_what_was_stored_before_rows_had_owners_is_its_teams(any_database: Database) -> None:
    file = {"id": "file-1", "team": "search", "key_id": "key_1", "filename": "f", "purpose": "batch", "bytes": 1}
    with any_database.begin() as connection:
        connection.execute(insert(files).values(**file, created_at=1.0))
        connection.execute(insert(response_items).values(team="search", id="msg_1", response_id="resp_1"))
        for name in ("files", "batches", "responses"):
            connection.execute(text(f"ALTER TABLE {name} DROP COLUMN owner"))
        connection.execute(text("ALTER TABLE keys DROP COLUMN allowed_models"))
        connection.execute(text("DROP INDEX ix_ledger_session"))
        for name in ("above_ceiling", "agent", "traffic_class"):
            connection.execute(text(f"ALTER TABLE ledger DROP COLUMN {name}"))
        for name in ("agent", "traffic_class"):
            connection.execute(text(f"ALTER TABLE ledger_sums DROP COLUMN {name}"))
        connection.execute(text("ALTER TABLE evidence DROP COLUMN traffic_class"))
        connection.execute(text("DROP TABLE class_trials"))
        for name in ("samples", "ledger_days"):
            connection.execute(text(f"DROP TABLE {name}"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0012'"))
    any_database.upgrade()
    with any_database.begin() as connection:
        assert connection.execute(select(files.c.owner)).scalars().all() == [""]
        connection.execute(insert(response_items).values(team="search", id="msg_1", response_id="resp_2"))
        assert connection.scalars(select(response_items.c.response_id)).all() == ["resp_1", "resp_2"]


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.heavy)])
def test_several_may_upgrade_at_once(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = f"sqlite:///{tmp_path}/deep/er/x.sqlite" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    databases = [Database(url) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(Database.upgrade, databases))
    with databases[0].begin() as connection:
        assert count(connection) == 0
        assert versions(connection) == [HEAD]
    for database in databases:
        database.close()


def test_a_checkpoint_that_the_disk_has_no_room_for_fails_as_every_other_statement(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/x.sqlite")
    database.upgrade()
    database.checkpoint()
    full = (tmp_path / "x.sqlite").stat().st_size
    with database.begin() as connection:
        connection.execute(insert(audit).values({**note("long"), "detail": "x" * 100_000}))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (full, before[1]))
    try:
        with pytest.raises(OperationalError, match="wal_checkpoint"):
            database.checkpoint()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert database.engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    assert (tmp_path / "x.sqlite").stat().st_size == full
    database.checkpoint()
    assert (tmp_path / "x.sqlite").stat().st_size > full
    database.close()


async def test_run_commits_what_the_work_did(any_database: Database) -> None:
    await any_database.run(lambda connection: connection.execute(insert(audit).values(note("done"))))
    assert await any_database.run(count, writes=False) == 1


async def test_an_exception_rolls_the_transaction_back(any_database: Database) -> None:
    def fail(connection: Connection) -> None:
        connection.execute(insert(audit).values(note("undone")))
        raise LookupError

    with pytest.raises(LookupError):
        await any_database.run(fail)
    assert await any_database.run(count, writes=False) == 0


async def test_many_writers_wait_for_each_other(any_database: Database) -> None:
    def write(connection: Connection) -> None:
        connection.execute(insert(audit).values(note(str(count(connection)))))

    await asyncio.gather(*(any_database.run(write) for _ in range(40)))
    assert await any_database.run(count, writes=False) == 40


def test_readers_do_not_wait_for_a_writer(any_database: Database) -> None:
    with any_database.begin() as writer:
        writer.execute(insert(audit).values(note("open")))
        with any_database.read() as reader:
            assert count(reader) == 0


async def test_work_that_takes_too_long_is_given_up(any_database: Database) -> None:
    gate = threading.Event()
    with pytest.raises(DatabaseTimeout):
        await any_database.run(lambda _: gate.wait(10), timeout_s=0.05)
    gate.set()


async def test_a_database_that_is_away_raises_an_error_of_sqlalchemy() -> None:
    database = await asyncio.to_thread(Database, "postgresql://nobody@127.0.0.1:1/none")  # loads the driver
    with pytest.raises(SQLAlchemyError):
        await database.run(count)
    database.close()


def test_sqlite_keeps_a_write_ahead_log_and_waits_when_busy(database: Database) -> None:
    with database.read() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA busy_timeout")).scalar_one() >= 5000
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 1
