"""PostgreSQL behind a proxy, its tables on a small filesystem of their own where one may be mounted."""

from __future__ import annotations

import signal
import subprocess
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from loadtests.chaos_database import START_S, Postgres
from loadtests.matrix_disk import Tmpfs
from loadtests.matrix_servers import Proxy, send

__all__ = ["START_S", "Database"]

SPACE_MB = 24


class Database:
    """One server for a whole run; every cell takes a fresh database of it."""

    def __init__(self) -> None:
        self._server = Postgres()
        self._server.start()
        self.proxy = Proxy(str(self._server.socket))
        self._name = ""
        self._space = self._small_space()

    @property
    def full_means(self) -> str:
        if self._space:
            return "the tables' filesystem is full"
        return "writes are refused (read-only: no filesystem may be mounted here)"

    def _small_space(self) -> Tmpfs | None:
        """A tablespace that can be filled without taking the write-ahead log down with it."""
        folder = Path(tempfile.mkdtemp(prefix="tg-matrix-space-"))
        try:
            space = Tmpfs(folder, SPACE_MB, self._server.user)
        except (OSError, subprocess.CalledProcessError):
            folder.rmdir()
            return None
        self._run(sql.SQL("CREATE TABLESPACE small LOCATION {}").format(str(space.inside)))
        return space

    def fresh(self) -> str:
        """The URL of an empty database, through the proxy."""
        self.drop()
        self._name = f"t{uuid.uuid4().hex[:12]}"
        where = sql.SQL("TABLESPACE small" if self._space else "")
        self._run(sql.SQL("CREATE DATABASE {} {}").format(sql.Identifier(self._name), where))
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.proxy.port}/{self._name}"

    @property
    def direct(self) -> str:
        """The same database without the proxy, for whoever looks."""
        return f"postgresql+psycopg://postgres@/{self._name}?host={self._server.socket.parent}"

    def drop(self) -> None:
        if self._name:
            self._run(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(self._name)))
            self._name = ""

    def strike(self, fault: str) -> None:
        match fault:
            case "killed":
                self._server.end()
            case "frozen":
                self._frozen = self._server.pids()
                send(self._frozen, signal.SIGSTOP)
            case "slow":
                self.proxy.behave(delay_s=1.0)
            case "full":
                self._fill()

    def mend(self, fault: str) -> None:
        match fault:
            case "killed":
                self._server.start()
            case "frozen":
                send(self._frozen, signal.SIGCONT)
            case "slow":
                self.proxy.behave()
            case "full":
                self._empty()

    def _fill(self) -> None:
        if self._space:
            self._space.fill()
        else:
            self._read_only(True)

    def _empty(self) -> None:
        if self._space:
            self._space.empty()
        else:
            self._read_only(False)

    def _read_only(self, on: bool) -> None:
        name = sql.Identifier(self._name)
        self._run(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = {}").format(name, sql.Literal(on)))
        self._run(
            sql.SQL("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = {}").format(self._name)
        )

    def _run(self, statement: Any) -> None:
        with psycopg.connect(self._server.address, autocommit=True, connect_timeout=5) as connection:
            connection.execute(statement)

    def stop(self) -> None:
        with suppress(psycopg.Error):
            self.drop()
            if self._space:
                self._run("DROP TABLESPACE small")
        self.proxy.stop()
        self._server.stop()
        if self._space:
            self._space.unmount()
