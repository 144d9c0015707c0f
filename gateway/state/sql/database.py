"""The SQL database: SQLite in the data directory, or PostgreSQL."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    insert,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as DatabaseTimeout

from gateway.state.migrations import HEAD
from gateway.state.sql.tables import metadata, name_partial_indexes

T = TypeVar("T")

_versions = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
"""Alembic's own table."""

THREADS = 4
RUN_S = 30.0
"""Maximum seconds to wait for one transaction."""
CLOSE_S = 5.0
_BUSY_MS = 10_000
_ADVISORY_LOCK = 0x7468726966740001
"""Id of the PostgreSQL advisory lock that a process holds while it migrates the tables."""


class Database:
    """A connection pool and its threads. All errors of the methods are SQLAlchemyErrors."""

    def __init__(self, url: str) -> None:
        """`url`: sqlite:///PATH or postgresql://…"""
        parsed = make_url(url)
        if parsed.drivername in ("postgres", "postgresql"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        self.sqlite = parsed.get_backend_name() == "sqlite"
        self._file = Path(parsed.database) if self.sqlite and parsed.database else None
        self.engine: Engine = _sqlite(parsed) if self.sqlite else _postgres(parsed)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="sql")
        self._running: set[Future[Any]] = set()

    def upgrade(self) -> None:
        """Migrate the tables to the newest version. Several processes may call this at once. Raises SQLAlchemyError."""
        if self._file:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _own_alone(self._file)
        if self._version() == HEAD:  # the usual case, for which Alembic need not be imported
            return
        with self.begin() as connection:
            if not self.sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(:id)"), {"id": _ADVISORY_LOCK})
            if inspect(connection).get_table_names():
                from gateway.state.migrations.upgrade import upgrade

                upgrade(connection)
            else:  # there is nothing to migrate, and importing Alembic would take most of the first start's time
                metadata.create_all(connection)
                _versions.create(connection)
                connection.execute(insert(_versions).values(version_num=HEAD))

    def _version(self) -> str | None:
        """The newest migration that the database has had. None if the database is empty or cannot be read."""
        try:
            with self.read() as connection:
                return connection.execute(select(_versions.c.version_num)).scalar()
        except SQLAlchemyError:
            return None

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A transaction that may write. It is committed at the end, and rolled back by an exception. Call it in a
        thread.
        """
        with self.engine.connect() as connection:
            connection = connection.execution_options(writes=True)
            with connection.begin():
                yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only reads. On SQLite it never waits for a writer. Call it in a thread."""
        with self.engine.connect() as connection, connection.begin():
            yield connection

    def checkpoint(self) -> None:
        """Write SQLite's last transactions to the disk, so that a power cut cannot undo them. On PostgreSQL this does
        nothing, because PostgreSQL writes each transaction to the disk. Call it in a thread. Raises SQLAlchemyError.
        """
        if not self.sqlite:
            return
        statement = "PRAGMA wal_checkpoint(PASSIVE)"  # not possible within a transaction, so without `begin`
        try:
            with closing(self.engine.raw_connection()) as connection:
                connection.cursor().execute(statement).close()
        except self.engine.dialect.loaded_dbapi.Error as error:
            raise OperationalError(statement, None, error) from error

    async def run(self, work: Callable[[Connection], T], *, timeout_s: float = RUN_S, writes: bool = True) -> T:
        """Run `work(connection)` in a thread, within a transaction. `writes`: whether the transaction may write.

        Raises SQLAlchemyError. It is a DatabaseTimeout if the transaction takes longer than `timeout_s` seconds.
        """
        future = self._threads.submit(self._transact, work, writes)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            raise DatabaseTimeout(f"the database took longer than {timeout_s:g} s") from error

    def _transact(self, work: Callable[[Connection], T], writes: bool) -> T:
        with self.begin() if writes else self.read() as connection:
            return work(connection)

    def close(self) -> None:
        """Start no further transactions, and wait up to `CLOSE_S` seconds for running ones. Call it in a thread."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        wait(set(self._running), timeout=CLOSE_S)
        self.engine.dispose()


def _own_alone(file: Path) -> None:
    """Make the database file, and thereby SQLite's files beside it, readable by its owner only."""
    with suppress(FileExistsError):  # an existing file is not opened, because closing it would release SQLite's locks
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    for one in (file, *(file.with_name(file.name + end) for end in ("-wal", "-shm"))):
        with suppress(FileNotFoundError):
            if one.stat().st_mode & 0o077:
                one.chmod(0o600)


def _sqlite(url: Any) -> Engine:
    engine = create_engine(url, connect_args={"timeout": _BUSY_MS / 1000, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # `begin` below begins transactions, not the driver
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", f"busy_timeout={_BUSY_MS}", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # SQLite refuses a reading transaction that starts to write, without waiting: begin
        # one that writes as such.
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgres(url: Any) -> Engine:
    name_partial_indexes()
    engine = create_engine(
        url,
        pool_size=THREADS,
        pool_pre_ping=True,
        pool_timeout=RUN_S,
        connect_args={"connect_timeout": 5, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3},
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {int(RUN_S * 1000)}")

    return engine
