"""Stores batches in SQL. The batches of OpenAI's and of Anthropic's API are in one table."""

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
"""Seconds for which the results of a message batch (Anthropic's API) are kept, counted from the batch's creation."""
MOST_OPEN = 100
"""Maximum unfinished batches of one team."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A row of the table `batches`. `status` is one of OpenAI's values, even if the batch came through Anthropic's API.
    Times are Unix seconds."""

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
    """Lineage of the key that may see the batch. If it is empty, all keys of the team may see the batch."""

    @property
    def name(self) -> str:
        """The batch's id without the vendor's prefix."""
        return self.id.partition("_")[2]

    @property
    def kept_until(self) -> float:
        """The Unix time at which the results of a message batch are deleted."""
        return self.created_at + KEPT_S

    def result_id(self, kind: str) -> str:
        """The id of one of the batch's result files; it stays the same after a restart. `kind`: `output` or `error`."""
        return f"file-{self.name}-{kind}"


@dataclass(frozen=True, slots=True)
class BatchFields:
    """The fields of a batch that make repeated requests safe: a request that is repeated with the same
    `Idempotency-Key` gets the existing batch."""

    idempotency: str | None = None
    """Digest of the `Idempotency-Key` and its owner; None if no such header was sent."""
    fingerprint: str | None = None
    """Digest of the request that makes the batch."""


EACH_TIME = BatchFields()


@dataclass(frozen=True, slots=True)
class Ended:
    """The values that are stored when a batch ends."""

    status: str
    """`completed`, `cancelled` or `expired`."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of the `output` and `error` files. Empty files are omitted."""
    counts: tuple[int, int] = (0, 0)
    """Number of lines (completed, failed)."""
    unsent: int = 0
    """Number of failed lines that were never sent, because the batch was cancelled or expired first."""
    usage: Mapping[str, Any] | None = None
    """Token sums in OpenAI's format."""


def family(endpoint: str) -> ColumnElement[bool]:
    """The SQL condition for all batches of the API to which `endpoint` belongs, Anthropic's or OpenAI's."""
    return batches.c.endpoint == MESSAGES if endpoint == MESSAGES else batches.c.endpoint != MESSAGES


def add(connection: Connection, batch: Batch) -> Batch:
    """Insert the batch and return it. If there is already a batch with the same `Idempotency-Key`, return that one.
    Raises KeyReused, LimitExceeded; NotFound if the input file was deleted."""
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
    """The batch that an earlier request with the same `Idempotency-Key` created; None if there is none. `once`: the
    idempotency fields of the present request. Raises KeyReused if these fields differ."""
    if once.idempotency is None:
        return None
    row = connection.execute(select(batches).where(batches.c.idempotency == once.idempotency)).first()
    if row is None:
        return None
    if row.fingerprint != once.fingerprint:
        raise KeyReused(
            "This Idempotency-Key was already used for a different batch; send a new key.", param="Idempotency-Key"
        )
    return Batch(**row._mapping)


async def keep(database: Database, batch: Batch) -> Batch:
    """Insert the batch in a transaction of its own, and return it. If there is already a batch with the same
    `Idempotency-Key`, return that one, even if both requests arrive at the same time. Raises the errors of
    `add`.
    """
    try:
        return await database.run(lambda connection: add(connection, batch))
    except IntegrityError:
        return await database.run(lambda connection: add(connection, batch))


def get(connection: Connection, viewer: Viewer, batch_id: str, endpoint: str = "") -> Batch:
    """The batch with this id. If `endpoint` is `/v1/messages`, only batches of Anthropic's API are found; otherwise
    only those of OpenAI's. Raises NotFound."""
    query = select(batches).where(batches.c.id == batch_id, seen_by(batches, viewer), family(endpoint))
    row = connection.execute(query).first()
    if row is None:
        raise NotFound(f"No such Batch object: {batch_id}.", param="batch_id")
    return Batch(**row._mapping)


def cancel(connection: Connection, viewer: Viewer, batch_id: str, now: float, endpoint: str = "") -> Batch:
    """Cancel a batch. Lines in progress are still answered. A second cancellation has no effect. Raises NotFound;
    BadRequest if the batch has ended or is `finalizing`."""
    batch = get(connection, viewer, batch_id, endpoint)
    if batch.status not in OPEN or batch.status == "finalizing":
        raise BadRequest(f"Cannot cancel a batch with status {batch.status!r}.", param="batch_id")
    stop = still_open(batch.id).where(batches.c.status.in_(("validating", "in_progress")))
    connection.execute(stop.values(status="cancelling", cancelling_at=now))
    return get(connection, viewer, batch_id, endpoint)


def still_open(batch_id: str) -> Any:
    """The beginning of an SQL update of the batch. The update changes nothing if the batch has ended."""
    return update(batches).where(batches.c.id == batch_id, batches.c.status.in_(OPEN))
