"""Keys: hashed at rest, looked up in a local snapshot, valid on a running gateway within a second."""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, func, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from gateway.domain.policy import TEAM_NAME, TEAM_NAME_LENGTH
from gateway.domain.tasks import repeat
from gateway.domain.tenant import Key
from gateway.state.sql import Database
from gateway.state.tables import audit, keys

log = logging.getLogger(__name__)

SCOPES = ("inference", "usage", "admin")
POLL_S = 0.4
_MODEL_NAME = re.compile(r"[^,\x00-\x1f\x7f]{1,200}")


def digest(secret: str | bytes) -> bytes:
    """SHA-256 is enough for a key of 256 random bits: there is nothing to guess."""
    return hashlib.sha256(secret.encode() if isinstance(secret, str) else secret).digest()


def check_team(team: str) -> None:
    """Raises ValueError unless a policy file could name it so."""
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
    """A new key → (the secret, shown this once; what is kept of it).

    `allowed_models`: names of backends, of models, or tiers; None: all that the policy allows. Raises ValueError for a
    name that no team or no model can have.
    """
    check_team(team)
    allowed = None if allowed_models is None else frozenset(allowed_models)
    if allowed is not None and not all(_MODEL_NAME.fullmatch(model) for model in allowed):
        raise ValueError("allowed models must be names without commas and control characters")
    asked = Key("", team, name, frozenset(scopes), expires_at, allowed_models=allowed)
    with database.begin() as connection:
        return _insert(connection, asked, actor, f"team {team}")


def revoke(database: Database, key_id: str, *, at: float | None = None, actor: str = "cli") -> bool:
    """Invalid from now (or `at`, Unix seconds). False when there is no such living key."""
    with database.begin() as connection:
        return _revoke(connection, key_id, at or time.time(), actor)


def rotate(database: Database, key_id: str, *, grace_s: float = 0.0, actor: str = "cli") -> tuple[str, Key] | None:
    """A twin of the key under a new secret, of the same lineage; the old one ends after `grace_s`.

    Both happen or neither does. None when there is no such living key.
    """
    with database.begin() as connection:
        if not _revoke(connection, key_id, time.time() + grace_s, actor):
            return None
        row = connection.execute(select(keys).where(keys.c.id == key_id)).one()
        twin = Key("", row.team, row.name, frozenset(row.scopes.split(",")), row.expires_at, row.lineage or row.id)
        twin = replace(twin, allowed_models=_allowed(row))
        return _insert(connection, twin, actor, f"team {row.team}, replaces {key_id}")


def _insert(connection: Connection, asked: Key, actor: str, detail: str) -> tuple[str, Key]:
    """`asked` has no id yet, and no lineage unless it replaces another key."""
    secret, id = f"tg-{secrets.token_urlsafe(32)}", f"key_{secrets.token_hex(8)}"
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


def _revoke(connection: Connection, key_id: str, at: float, actor: str) -> bool:
    found = connection.execute(
        update(keys).where(keys.c.id == key_id, keys.c.revoked_at.is_(None)).values(revoked_at=at)
    )
    if found.rowcount:
        _audit(connection, actor, "key.revoke", key_id)
    return bool(found.rowcount)


def listing(database: Database, team: str | None = None) -> list[dict[str, Any]]:
    """What is kept of every key, newest first; never a secret or its digest."""
    query = select(*[column for column in keys.c if column.name != "digest"]).order_by(keys.c.created_at.desc())
    if team is not None:
        query = query.where(keys.c.team == team)
    with database.begin() as connection:
        # SQLAlchemy's column names are a kind of `str` that JSON writers do not take.
        return [{str(name): value for name, value in row._mapping.items()} for row in connection.execute(query)]


def note(database: Database, actor: str, action: str, subject: str, detail: str = "") -> None:
    """Write into the audit table what else was done under a key."""
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


class KeyRing:
    """The worker's snapshot of all living keys, by digest. Keeps serving it while the database is away."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._mark: tuple[Any, ...] | None = None
        self._keys: dict[bytes, Key] = {}
        self._digests: dict[str, bytes] = {}
        self._listeners: list[Callable[[], None]] = []
        self.version = 0
        """Grows with every change, so that whoever derives from the snapshot knows when to start anew."""
        self.ready = False
        self._read_at = time.monotonic()

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    @property
    def teams(self) -> set[str]:
        """Those that have a living key."""
        return {key.team for key in self._keys.values()}

    def find(self, key_digest: bytes) -> Key | None:
        return self._keys.get(key_digest)

    def digest_of(self, lineage: str) -> bytes | None:
        """What `find` takes, for work done later in the name of a key or of whichever replaced it."""
        return self._digests.get(lineage)

    async def refresh(self) -> None:
        """One cheap look; reads the keys only when something changed. Raises SQLAlchemyError."""
        mark = await self._database.run(_mark)
        if mark != self._mark:
            rows = await self._database.run(_living)
            self._keys = {bytes(row.digest): _key(row) for row in rows}
            # Of a lineage's living keys the newest: the last one wins.
            self._digests = {key.lineage: key_digest for key_digest, key in self._keys.items()}
            self._mark = mark
            self.version += 1
            self.ready = True
            for listener in self._listeners:
                listener()
        self.ready, self._read_at = True, time.monotonic()

    async def follow(self) -> None:
        """Refresh a few times a second, for ever."""
        await repeat(self.refresh, POLL_S, _troubled, SQLAlchemyError)

    @property
    def age_s(self) -> float:
        """How old the snapshot is: more than a second or two when the database is away or slow."""
        return time.monotonic() - self._read_at

    def stats(self) -> dict[str, int | float | str]:
        return {"keys": len(self._keys), "ready": int(self.ready), "age_s": round(self.age_s, 1)}


def _mark(connection: Connection) -> tuple[Any, ...]:
    row = connection.execute(
        select(func.count(), func.max(keys.c.created_at), func.count(keys.c.revoked_at), func.max(keys.c.revoked_at))
    ).one()
    return tuple(row)


def _living(connection: Connection) -> list[Any]:
    now = time.time()
    living = (keys.c.revoked_at.is_(None)) | (keys.c.revoked_at > now)
    return list(connection.execute(select(keys).where(living).order_by(keys.c.created_at)).all())


def _troubled(error: Exception) -> None:
    log.warning("keys cannot be read, the last snapshot stays in force: %s", error)
