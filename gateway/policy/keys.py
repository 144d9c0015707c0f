"""API keys. They are stored as hashes and looked up in a snapshot in memory. A running gateway applies a change within
a second."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, insert, or_, select, update
from sqlalchemy.exc import SQLAlchemyError

from gateway.domain.policy import TEAM_NAME, TEAM_NAME_LENGTH
from gateway.domain.tenant import Key
from gateway.runtime.tasks import repeat
from gateway.state.sql.database import Database
from gateway.state.sql.tables import audit, keys

log = logging.getLogger(__name__)

SCOPES = ("inference", "usage", "admin")
PREFIX = "tg-"
POLL_S = 0.4
CATCH_UP_EVERY_S = 0.05
CATCH_UP_WITHIN_S = 1.0
MOST_ENDED = 10_000
"""The number of revoked keys that a worker recognises. An older one counts as unknown."""
_MODEL_NAME = re.compile(r"[^,\x00-\x1f\x7f]{1,200}")


def digest(secret: str | bytes) -> bytes:
    """The SHA-256 of a secret. A key has 256 random bits, so a slow hash would not make it safer."""
    return hashlib.sha256(secret.encode() if isinstance(secret, str) else secret).digest()


def check_team(team: str) -> None:
    """Raise ValueError if the team name is not allowed in a policy file."""
    if not re.fullmatch(TEAM_NAME, team) or len(team) > TEAM_NAME_LENGTH:
        raise ValueError(
            f"must be at most {TEAM_NAME_LENGTH} letters, digits and ._- and begin with a letter or digit, not {team!r}"
        )


def create(
    database: Database,
    team: str,
    *,
    name: str = "",
    scopes: Iterable[str] = ("inference",),
    expires_at: float | None = None,
    allowed_models: Iterable[str] | None = None,
    actor: str = "cli",
) -> tuple[str, Key]:
    """Create a key. Returns the secret, which is never shown again, and the stored key. `allowed_models`: names of
    backends, models or tiers; None: all are allowed. Raises ValueError for an invalid name of a team or model."""
    check_team(team)
    allowed = None if allowed_models is None else frozenset(allowed_models)
    if allowed is not None and not all(_MODEL_NAME.fullmatch(model) for model in allowed):
        raise ValueError("allowed models must be names without commas and control characters")
    asked = Key("", team, name, frozenset(scopes), expires_at, allowed_models=allowed)
    with database.begin() as connection:
        return _insert(connection, asked, actor, f"team {team}")


def revoke(database: Database, key_id: str, *, actor: str = "cli") -> list[str]:
    """End a key at once, together with all keys of its lineage (the keys that it replaced or that replaced it). Returns
    their ids; empty if no active key has this id."""
    with database.begin() as connection:
        row = connection.execute(select(keys).where(keys.c.id == key_id)).first()
        # After a rotation, the old secret stays valid for a time, and it may be the one that leaked.
        return [] if row is None else _end(connection, _of_lineage(connection, row), actor)


def revoke_team(database: Database, team: str, *, actor: str = "cli") -> list[str]:
    """End all keys of a team at once, and return their ids."""
    with database.begin() as connection:
        # A rotation in progress adds a key that an update would not see, so wait for its lock first.
        connection.execute(select(keys.c.id).where(keys.c.team == team).order_by(keys.c.id).with_for_update())
        return _end(connection, keys.c.team == team, actor)


def living(database: Database, team: str) -> list[str]:
    """The ids of the keys that `revoke_team` would end."""
    with database.read() as connection:
        return list(connection.scalars(select(keys.c.id).where(keys.c.team == team, _living_at(_now(connection)))))


def rotate(database: Database, key_id: str, *, grace_s: float = 0.0, actor: str = "cli") -> tuple[str, Key] | None:
    """Replace the key `key_id` by a key with a new secret and the same settings. The old key ends after `grace_s`
    seconds. Returns None if no active key has this id."""
    with database.begin() as connection:
        row = connection.execute(select(keys).where(keys.c.id == key_id)).first()
        if row is None:
            return None
        _of_lineage(connection, row)
        ends = update(keys).where(keys.c.id == key_id, keys.c.revoked_at.is_(None))
        if not connection.execute(ends.values(revoked_at=_now(connection) + grace_s)).rowcount:
            return None
        _audit(connection, actor, "key.revoke", key_id)
        twin = Key("", row.team, row.name, frozenset(row.scopes.split(",")), row.expires_at, row.lineage or row.id)
        twin = replace(twin, allowed_models=_allowed(row))
        return _insert(connection, twin, actor, f"team {row.team}, replaces {key_id}")


def _insert(connection: Connection, asked: Key, actor: str, detail: str) -> tuple[str, Key]:
    """Insert the key `asked`, which has no id yet. If the key replaces another one, its `lineage` is set. Returns the
    secret and the stored key."""
    secret, id = f"{PREFIX}{secrets.token_urlsafe(32)}", f"key_{secrets.token_hex(8)}"
    key = replace(asked, id=id, lineage=asked.lineage or id)
    connection.execute(
        insert(keys).values(
            id=id,
            digest=digest(secret),
            team=key.team,
            name=key.name,
            scopes=",".join(sorted(key.scopes)),
            created_at=time.time(),
            expires_at=key.expires_at,
            lineage=key.lineage,
            allowed_models=None if key.allowed_models is None else ",".join(sorted(key.allowed_models)),
        )
    )
    _audit(connection, actor, "key.create", id, detail)
    return secret, key


def _of_lineage(connection: Connection, row: Any) -> ColumnElement[bool]:
    """The SQL condition for all keys in the lineage of `row`, that is, for all keys that replaced each other. It also
    locks the lineage's first key until the transaction ends."""
    lineage = row.lineage or row.id
    # Without this lock, a rotation at the same time could replace a revoked key by an active one.
    connection.execute(select(keys.c.id).where(keys.c.id == lineage).with_for_update())
    return or_(keys.c.lineage == lineage, keys.c.id == lineage)


def _end(connection: Connection, which: ColumnElement[bool], actor: str) -> list[str]:
    now = _now(connection)
    ids = list(connection.scalars(select(keys.c.id).where(which, _living_at(now)).order_by(keys.c.id)))
    connection.execute(update(keys).where(keys.c.id.in_(ids)).values(revoked_at=now))
    for key_id in ids:
        _audit(connection, actor, "key.revoke", key_id)
    return ids


def _living_at(now: float) -> ColumnElement[bool]:
    return keys.c.revoked_at.is_(None) | (keys.c.revoked_at > now)


def _now(connection: Connection) -> float:
    """The present time in Unix seconds, from the database's clock. All hosts use this clock, so that they agree on
    which keys have ended."""
    if connection.dialect.name != "postgresql":
        return time.time()
    return float(connection.scalar(select(func.extract("epoch", func.clock_timestamp()))) or 0.0)


def listing(database: Database, team: str | None = None) -> list[dict[str, Any]]:
    """The stored facts about every key, newest key first. They contain neither secrets nor digests."""
    query = select(*[column for column in keys.c if column.name != "digest"]).order_by(keys.c.created_at.desc())
    if team is not None:
        query = query.where(keys.c.team == team)
    with database.begin() as connection:
        # JSON writers do not accept SQLAlchemy's column names, which are a subclass of `str`.
        return [{str(name): value for name, value in row._mapping.items()} for row in connection.execute(query)]


def note(database: Database, actor: str, action: str, subject: str, detail: str = "") -> None:
    """Write an entry to the audit table."""
    with database.begin() as connection:
        _audit(connection, actor, action, subject, detail)


def _audit(connection: Connection, actor: str, action: str, subject: str, detail: str = "") -> None:
    connection.execute(insert(audit).values(at=time.time(), actor=actor, action=action, subject=subject, detail=detail))


def _key(row: Any) -> Key:
    ends = [moment for moment in (row.expires_at, row.revoked_at) if moment is not None]
    expires_at = min(ends) if ends else None
    scopes = frozenset(row.scopes.split(","))
    return Key(row.id, row.team, row.name, scopes, expires_at, row.lineage, _allowed(row))


def _allowed(row: Any) -> frozenset[str] | None:
    return None if row.allowed_models is None else frozenset(filter(None, row.allowed_models.split(",")))


class Keys:
    """The worker's snapshot of all active keys, by digest. It can still be used while the database is unavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._mark: tuple[Any, ...] | None = None
        self._keys: dict[bytes, Key] = {}
        self._digests: dict[str, bytes] = {}
        self._ended: frozenset[bytes] = frozenset()
        self._listeners: list[Callable[[], None]] = []
        self.version = 0
        """A number that grows with every change of the snapshot. Values derived from the snapshot are renewed when it
        changes."""
        self.ready = False
        self._read_at = time.monotonic()
        self._begun_at = float("-inf")
        self._reading = asyncio.Lock()

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    @property
    def teams(self) -> set[str]:
        """The names of the teams with an active key."""
        return {key.team for key in self._keys.values()}

    def newest(self, most: int) -> list[str]:
        """The lineages of the newest active keys that may ask for completions: one for each team, at most `most`."""
        found: dict[str, str] = {}
        for key in reversed(self._keys.values()):
            if len(found) == most:
                break
            if "inference" in key.scopes:
                found.setdefault(key.team, key.lineage)
        return list(found.values())

    def find(self, key_digest: bytes) -> Key | None:
        return self._keys.get(key_digest)

    def ended(self, key_digest: bytes) -> bool:
        """Whether the key was revoked or replaced, so that its holder can be told so."""
        return key_digest in self._ended

    def digest_of(self, lineage: str) -> bytes | None:
        """The digest of the active key of a lineage; None if there is none. A lineage is a key with its replacements.
        `find` accepts the digest."""
        return self._digests.get(lineage)

    async def refresh(self) -> None:
        """Read the keys again if they have changed. A cheap query finds out whether they have. Raises
        SQLAlchemyError."""
        async with self._reading:
            await self._read()

    async def catch_up(self) -> None:
        """Return when the snapshot contains every key that was created before this call. Waits at most
        `CATCH_UP_WITHIN_S` seconds. The database is queried at most once every `CATCH_UP_EVERY_S` seconds."""
        called_at = time.monotonic()
        with contextlib.suppress(TimeoutError, SQLAlchemyError):
            async with asyncio.timeout(CATCH_UP_WITHIN_S), self._reading:
                if self._begun_at < called_at:
                    await asyncio.sleep(self._begun_at + CATCH_UP_EVERY_S - called_at)
                    await self._read()

    async def _read(self) -> None:
        self._begun_at = time.monotonic()
        mark = await self._database.run(_mark, writes=False)
        if mark != self._mark:
            rows, ended = await self._database.run(_living_and_ended, writes=False)
            self._ended = frozenset(ended)
            self._keys = {bytes(row.digest): _key(row) for row in rows}
            # If a lineage has several active keys, the newest is kept, because the keys are in order of their age.
            self._digests = {key.lineage: key_digest for key_digest, key in self._keys.items()}
            self._mark = mark
            self.version += 1
            self.ready = True
            for listener in self._listeners:
                listener()
        self.ready, self._read_at = True, time.monotonic()

    async def follow(self) -> None:
        """Refresh the snapshot several times a second, until cancelled."""
        await repeat(self.refresh, POLL_S, _troubled, SQLAlchemyError)

    @property
    def age_s(self) -> float:
        """The age of the snapshot in seconds. More than two seconds mean that the database is unavailable or slow."""
        return time.monotonic() - self._read_at

    def stats(self) -> dict[str, int | float | str]:
        return {"keys": len(self._keys), "ready": int(self.ready), "age_s": round(self.age_s, 1)}


def _mark(connection: Connection) -> tuple[Any, ...]:
    """A value that is different after every change of the keys."""
    ends = keys.c.revoked_at  # summed: the maximum stays the same if an earlier end is moved
    return tuple(
        connection.execute(select(func.count(), func.max(keys.c.created_at), func.count(ends), func.sum(ends))).one()
    )


def _living_and_ended(connection: Connection) -> tuple[list[Any], list[bytes]]:
    """The rows of the active keys, oldest first, and the digests of the keys that were revoked last."""
    now = _now(connection)
    living = select(keys).where(_living_at(now)).order_by(keys.c.created_at)
    ended = select(keys.c.digest).where(keys.c.revoked_at <= now).order_by(keys.c.revoked_at.desc()).limit(MOST_ENDED)
    return list(connection.execute(living).all()), [bytes(each) for each in connection.scalars(ended)]


def _troubled(error: Exception) -> None:
    log.warning("keys cannot be read, so the keys that were read last stay valid: %s", error)
