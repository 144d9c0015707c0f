"""Batches as SQL knows them: made, looked at, cancelled by teams; moved on by the runner."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Connection, func, insert, select, update

from gateway.batches.files import OPEN, Files, Page, StoredFile, find, new_id, record
from gateway.batches.lines import ENDPOINTS, check
from gateway.domain.tenant import Tenant
from gateway.errors import BadRequest, LimitExceeded, NotFound
from gateway.state.sql import Database
from gateway.state.tables import batches

WINDOW_S = 24 * 3600.0
MOST_OPEN = 100
"""Unfinished batches of one team."""
_PAIRS, _NAME, _VALUE = 16, 64, 512


@dataclass(frozen=True, slots=True)
class Batch:
    """A row of `batches`. Its status is OpenAI's: `validating` until a runner takes it."""

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

    def result_id(self, kind: str) -> str:
        """What its `output` or `error` file is called; made of the id so that a restart finds it again."""
        return f"file-{self.id.removeprefix('batch_')}-{kind}"


class Jobs:
    """Other teams' batches do not exist, whatever one knows of them."""

    def __init__(self, database: Database, files: Files, *, max_line_bytes: int) -> None:
        self._database, self._files, self._max_line_bytes = database, files, max_line_bytes

    async def create(self, tenant: Tenant, asked: Mapping[str, Any]) -> Batch:
        """Validates every line: a batch with a bad one is made, `failed`, and tells which. Raises BadRequest, NotFound.

        `asked` is the body of OpenAI's request: input_file_id, endpoint, completion_window, metadata.
        """
        file_id, endpoint, metadata = _read(asked)
        file = await self._files.get(tenant.team, file_id)
        if file.purpose != "batch":
            raise BadRequest(f"The file's purpose is {file.purpose}; upload it with purpose batch.", param="purpose")
        try:
            checked = await asyncio.to_thread(check, self._files.path(file.id), endpoint, self._max_line_bytes)
        except FileNotFoundError:
            raise NotFound(f"The bytes of {file.id} are not on this host.", param="input_file_id") from None
        now, bad = time.time(), bool(checked.problems)
        batch = Batch(
            id=f"batch_{new_id()}",
            team=tenant.team,
            key_id=tenant.key.id,
            status="failed" if bad else "validating",
            endpoint=endpoint,
            input_file_id=file.id,
            metadata=orjson.dumps(metadata).decode(),
            total=0 if bad else checked.total,
            created_at=now,
            expires_at=now + WINDOW_S,
            finished_at=now if bad else None,
            errors=orjson.dumps(checked.problems).decode() if bad else None,
        )
        await self._database.run(lambda connection: _insert(connection, batch))
        return batch

    async def get(self, team: str, batch_id: str) -> Batch:
        """Raises NotFound."""
        return await self._database.run(lambda connection: _find(connection, team, batch_id), writes=False)

    async def page(self, team: str, page: Page) -> list[Batch]:
        """At most one more than `page.limit`."""
        rows = await self._database.run(lambda found: found.execute(page.of(batches, team)).all(), writes=False)
        return [Batch(**row._mapping) for row in rows]

    async def cancel(self, team: str, batch_id: str) -> Batch:
        """What is being answered is still answered. Raises NotFound, BadRequest when it has ended."""

        def work(connection: Connection) -> Batch:
            batch = _find(connection, team, batch_id)
            if batch.status not in OPEN:
                raise BadRequest(f"Cannot cancel a batch with status {batch.status!r}.", param="batch_id")
            connection.execute(_open(batch.id).values(status="cancelling"))
            return _find(connection, team, batch_id)

        return await self._database.run(work)

    async def unfinished(self) -> list[Batch]:
        """Of all teams, oldest first."""
        query = select(batches).where(batches.c.status.in_(OPEN)).order_by(batches.c.id)
        rows = await self._database.run(lambda connection: connection.execute(query).all(), writes=False)
        return [Batch(**row._mapping) for row in rows]

    async def begin(self, batch: Batch) -> bool:
        """A runner takes it; False when it has ended meanwhile."""
        start = update(batches).where(batches.c.id == batch.id, batches.c.status == "validating")

        def work(connection: Connection) -> bool:
            connection.execute(start.values(status="in_progress", started_at=time.time()))
            return _find(connection, batch.team, batch.id).status in OPEN

        return await self._database.run(work)

    async def count(self, counts: Mapping[str, tuple[int, int]]) -> None:
        """Batch → lines (completed, failed) so far."""

        def work(connection: Connection) -> None:
            for batch_id, (completed, failed) in counts.items():
                connection.execute(_open(batch_id).values(completed=completed, failed=failed))

        await self._database.run(work)

    async def finish(self, batch: Batch, status: str, sizes: Mapping[str, int], counts: tuple[int, int]) -> None:
        """Its result files (`output` and `error`, in bytes; an empty one is none) and its end are seen at once."""
        now = time.time()
        kinds = [kind for kind, size in sizes.items() if size]
        values: dict[str, Any] = {f"{kind}_file_id": batch.result_id(kind) for kind in kinds}
        values |= {"status": status, "completed": counts[0], "failed": counts[1], "finished_at": now}

        def work(connection: Connection) -> None:
            if connection.execute(_open(batch.id).values(values)).rowcount:
                for kind in kinds:
                    name = f"{batch.id}_{kind}.jsonl"
                    made = (batch.result_id(kind), batch.team, batch.key_id, name, "batch_output", sizes[kind], now)
                    record(connection, StoredFile(*made))

        await self._database.run(work)


def _read(asked: Mapping[str, Any]) -> tuple[str, str, dict[str, str]]:
    """(input file, endpoint, metadata). Raises BadRequest."""
    file_id, endpoint, metadata = asked.get("input_file_id"), asked.get("endpoint"), asked.get("metadata")
    if not isinstance(file_id, str):
        raise BadRequest("input_file_id is required: the id of a file of purpose batch.", param="input_file_id")
    if not isinstance(endpoint, str) or endpoint not in ENDPOINTS:
        raise BadRequest(f"endpoint must be one of {', '.join(ENDPOINTS)}.", param="endpoint")
    if asked.get("completion_window") != "24h":
        raise BadRequest("completion_window must be 24h.", param="completion_window")
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, dict) or len(metadata) > _PAIRS or not all(map(_is_pair, metadata.items())):
        raise BadRequest(
            f"metadata must be at most {_PAIRS} strings of {_VALUE} characters under names of {_NAME}.",
            param="metadata",
        )
    return file_id, endpoint, metadata


def _is_pair(pair: tuple[str, Any]) -> bool:
    name, value = pair
    return len(name) <= _NAME and isinstance(value, str) and len(value) <= _VALUE


def _insert(connection: Connection, batch: Batch) -> None:
    find(connection, batch.team, batch.input_file_id, lock=True)
    mine = select(func.count()).where(batches.c.team == batch.team, batches.c.status.in_(OPEN))
    if (connection.scalar(mine) or 0) >= MOST_OPEN:
        raise LimitExceeded(f"Your team has {MOST_OPEN} unfinished batches; wait for one to end.", retry_after_s=60.0)
    connection.execute(insert(batches).values({name: getattr(batch, name) for name in Batch.__slots__}))


def _find(connection: Connection, team: str, batch_id: str) -> Batch:
    row = connection.execute(select(batches).where(batches.c.id == batch_id, batches.c.team == team)).first()
    if row is None:
        raise NotFound(f"No such Batch object: {batch_id}.", param="batch_id")
    return Batch(**row._mapping)


def _open(batch_id: str) -> Any:
    """An update of a batch that has not ended: an end is final."""
    return update(batches).where(batches.c.id == batch_id, batches.c.status.in_(OPEN))
