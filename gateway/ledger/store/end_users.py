"""Stores the names of end users with their pseudonyms, if the policy allows it. The names are kept outside of the
ledger and can be erased."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, select, text
from sqlalchemy.exc import SQLAlchemyError

from gateway.domain.end_user import PREFIX, Pseudonyms, named
from gateway.domain.protocols import Clock
from gateway.domain.record import Record
from gateway.runtime.tasks import Tasks
from gateway.state.sql.database import Database
from gateway.state.sql.tables import ledger, ledger_sums

log = logging.getLogger(__name__)

WRITE_S = 1.0
"""Seconds between writes of new names."""
MOST_KNOWN = 50_000
"""Maximum number of pseudonyms of which a worker remembers that their names are stored."""
_KEEP = text(
    "INSERT INTO end_users (pseudonym, team, name, seen_at) VALUES (:pseudonym, :team, :name, :seen_at) "
    "ON CONFLICT (pseudonym, team) DO NOTHING"
)
_FORGET = text(
    "INSERT INTO end_users (pseudonym, team, name, seen_at) VALUES (:pseudonym, :team, NULL, :seen_at) "
    "ON CONFLICT (pseudonym, team) DO UPDATE SET name = NULL"
)


def secret(path: Path) -> bytes:
    """Read the secret from which pseudonyms are made. If the file does not exist, create it. Raises OSError."""
    try:
        return bytes.fromhex(path.read_text())
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    hidden = path.with_name(f"{path.name}.{os.urandom(6).hex()}")
    with open(os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(os.urandom(32).hex())
    try:
        path.hardlink_to(hidden)
    except FileExistsError:
        pass  # another process created it first
    finally:
        hidden.unlink()
    return bytes.fromhex(path.read_text())


class EndUsers:
    """Sets the pseudonyms of the requests in one worker, and stores the names. If a crash loses a name, the end user's
    next request stores it again."""

    def __init__(self, path: Path, database: Database, clock: Clock = time) -> None:
        """`path`: the file with the secret."""
        self._path, self._database, self._clock = path, database, clock
        self._pseudonyms: Pseudonyms | None = None
        self._known: set[tuple[str, str]] = set()
        self._waiting: list[dict[str, Any]] = []
        self._tasks = Tasks()

    async def open(self) -> None:
        """Read or create the secret. Raises OSError."""
        self._pseudonyms = Pseudonyms(await asyncio.to_thread(secret, self._path))
        self._tasks.spawn(self._write(), "end users")

    async def aclose(self) -> None:
        await self._tasks.aclose()
        await self._flush()

    def note(self, body: dict[str, Any], record: Record, header: str = "") -> None:
        """Set `record.end_user` to the pseudonym of the request's end user. The name is taken from the `body`; if the
        body has none, from the `header`."""
        name = named(body, header)
        if not name or self._pseudonyms is None:
            return
        record.end_user = pseudonym = self._pseudonyms.of(name)
        if record.tenant.policy.data.store_end_users:
            self._keep(pseudonym, record.tenant.team, name)

    def _keep(self, pseudonym: str, team: str, name: str) -> None:
        if (pseudonym, team) in self._known:
            return
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known.add((pseudonym, team))
        self._waiting.append(
            {"pseudonym": pseudonym, "team": team, "name": _storable(name), "seen_at": self._clock.time()}
        )

    async def _write(self) -> None:
        while True:
            await asyncio.sleep(WRITE_S)
            await self._flush()

    async def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        try:
            await self._database.run(lambda connection: connection.execute(_KEEP, waiting))
        except SQLAlchemyError as error:
            log.warning("%d end users' names cannot be stored: %s", len(waiting), type(error).__name__)
            self._known.difference_update((one["pseudonym"], one["team"]) for one in waiting)


def forget(connection: Connection, name: str, pseudonyms: Pseudonyms, now: float) -> tuple[str, int]:
    """Erase an end user's name, and never store it again. Returns (pseudonym, number of erased names). `name`: the name
    that clients send, or its pseudonym. The ledger's rows keep the pseudonym."""
    pseudonym = name if name.startswith(PREFIX) else pseudonyms.of(name)
    named_by = connection.execute(
        text("SELECT team FROM end_users WHERE pseudonym = :pseudonym AND name IS NOT NULL"), {"pseudonym": pseudonym}
    ).scalars()
    erased = list(named_by)
    teams = {*erased}
    for table in (ledger, ledger_sums):
        teams.update(connection.scalars(select(table.c.team).where(table.c.end_user == pseudonym).distinct()))
    for team in sorted(teams):
        connection.execute(_FORGET, {"pseudonym": pseudonym, "team": team, "seen_at": now})
    return pseudonym, len(erased)


def rows_of(connection: Connection, pseudonym: str) -> int:
    """The number of ledger rows with this pseudonym, without rolled-up rows."""
    counted = select(func.count()).select_from(ledger).where(ledger.c.end_user == pseudonym)
    return int(connection.scalar(counted) or 0)


def _storable(name: str) -> str:
    """`name` without NUL characters and lone surrogates, because PostgreSQL refuses these."""
    return name.replace("\0", "").encode(errors="replace").decode()
