"""One batch in SQL, for both vendors' APIs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from gateway.batches.files import OPEN, find
from gateway.batches.forms import MESSAGES
from gateway.domain.tenant import Viewer
from gateway.errors import BadRequest, KeyReused, LimitExceeded, NotFound
from gateway.state.sql.database import Database
from gateway.state.sql.ownership import seen_by
from gateway.state.sql.tables import batches

WINDOW_S = 24 * 3600.0
KEPT_S = 29 * 24 * 3600.0
"""So long after a message batch was made its results are there."""
MOST_OPEN = 100
"""Unfinished batches of one team."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A row of `batches`. Its status is OpenAI's: `validating` until a runner takes it. Times are Unix seconds."""

    id: str
    team: str
    key_id: str
    status: str
    endpoint: str
    input_file_id: str
    metadata: str
    total: int
    created_at: float
    expires_at: float
    output_file_id: str | None = None
    error_file_id: str | None = None
    completed: int = 0
    failed: int = 0
    started_at: float | None = None
    finished_at: float | None = None
    errors: str | None = None
    headers: str | None = None
    model: str | None = None
    usage: str | None = None
    unsent: int | None = None
    output_expires_s: float | None = None
    cancelling_at: float | None = None
    finalizing_at: float | None = None
    idempotency: str | None = None
    fingerprint: str | None = None
    owner: str = ""
    """Lineage of the key that may see it; empty: all of the team may."""

    @property
    def name(self) -> str:
        """Its id without the vendor's prefix."""
        return self.id.partition("_")[2]

    @property
    def kept_until(self) -> float:
        """When the results of a message batch go."""
        return self.created_at + KEPT_S

    def result_id(self, kind: str) -> str:
        """What its `output` or `error` file is called; made of the id so that a restart finds it again."""
        return f"file-{self.name}-{kind}"


@dataclass(frozen=True, slots=True)
class BatchFields:
    """An `Idempotency-Key`: a repeated request with it gets the existing batch."""

    idempotency: str | None = None
    """Digest of the key and its owner; None: none was sent."""
    fingerprint: str | None = None
    """Digest of the request."""


EACH_TIME = BatchFields()


@dataclass(frozen=True, slots=True)
class Ended:
    """How a batch ended."""

    status: str
    """completed, cancelled or expired."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of its `output` and its `error` file; an empty one is none."""
    counts: tuple[int, int] = (0, 0)
    """Lines (completed, failed)."""
    unsent: int = 0
    """Of those that failed, the ones that were not sent before it ended."""
    usage: Mapping[str, Any] | None = None
    """OpenAI's sums of tokens."""


def family(endpoint: str) -> ColumnElement[bool]:
    """The batches that the vendor of `endpoint` would know: the others do not exist for its clients."""
    return batches.c.endpoint == MESSAGES if endpoint == MESSAGES else batches.c.endpoint != MESSAGES


def add(connection: Connection, batch: Batch) -> Batch:
    """The batch, or the one that was made when the same was asked before.

    Raises KeyReused, LimitExceeded, and NotFound when its file has been deleted meanwhile.
    """
    if known := made(connection, BatchFields(batch.idempotency, batch.fingerprint)):
        return known
    if batch.endpoint != MESSAGES:
        find(connection, Viewer(batch.team), batch.input_file_id, lock=True)
    mine = select(func.count()).where(batches.c.team == batch.team, batches.c.status.in_(OPEN))
    if (connection.scalar(mine) or 0) >= MOST_OPEN:
        raise LimitExceeded(f"Your team has {MOST_OPEN} unfinished batches; wait for one to end.", retry_after_s=60.0)
    connection.execute(insert(batches).values({name: getattr(batch, name) for name in Batch.__slots__}))
    return batch


def made(connection: Connection, once: BatchFields) -> Batch | None:
    """What was asked for with this key before. Raises KeyReused when that was something else."""
    if once.idempotency is None:
        return None
    row = connection.execute(select(batches).where(batches.c.idempotency == once.idempotency)).first()
    if row is None:
        return None
    if row.fingerprint != once.fingerprint:
        raise KeyReused(
            "This Idempotency-Key came with another batch; send a new key with it.", param="Idempotency-Key"
        )
    return Batch(**row._mapping)


async def keep(database: Database, batch: Batch) -> Batch:
    """As `add`; of two that ask at once with one key, one makes it."""
    try:
        return await database.run(lambda connection: add(connection, batch))
    except IntegrityError:
        return await database.run(lambda connection: add(connection, batch))


def get(connection: Connection, viewer: Viewer, batch_id: str, endpoint: str = "") -> Batch:
    """One of the family of `endpoint`. Raises NotFound."""
    query = select(batches).where(batches.c.id == batch_id, seen_by(batches, viewer), family(endpoint))
    row = connection.execute(query).first()
    if row is None:
        raise NotFound(f"No such Batch object: {batch_id}.", param="batch_id")
    return Batch(**row._mapping)


def cancel(connection: Connection, viewer: Viewer, batch_id: str, now: float, endpoint: str = "") -> Batch:
    """What is being answered is still answered; asking twice is asking once. Raises NotFound, BadRequest."""
    batch = get(connection, viewer, batch_id, endpoint)
    if batch.status not in OPEN or batch.status == "finalizing":
        raise BadRequest(f"Cannot cancel a batch with status {batch.status!r}.", param="batch_id")
    stop = still_open(batch.id).where(batches.c.status.in_(("validating", "in_progress")))
    connection.execute(stop.values(status="cancelling", cancelling_at=now))
    return get(connection, viewer, batch_id, endpoint)


def still_open(batch_id: str) -> Any:
    """An update of a batch that has not ended: an end is final."""
    return update(batches).where(batches.c.id == batch_id, batches.c.status.in_(OPEN))
