"""Creates, lists and cancels batches of OpenAI's API, and changes the states of batches of both APIs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import orjson
from sqlalchemy import Connection, select, update

from gateway.batches import batch as rows
from gateway.batches import options
from gateway.batches.batch import EACH_TIME, WINDOW_S, Batch, BatchFields, Ended, family, still_open
from gateway.batches.files import INLINE, OPEN, Files, Page, StoredFile, new_id, record
from gateway.batches.forms import FORMS, MESSAGES
from gateway.batches.lines import check
from gateway.domain.tenant import Tenant, Viewer
from gateway.errors import BadRequest, NotFound
from gateway.state.sql.database import Database
from gateway.state.sql.tables import batches


class Jobs:
    """Creates, lists and cancels batches. If a caller may not see a batch, the batch counts as missing."""

    def __init__(self, database: Database, files: Files, *, max_line_bytes: int, max_line_items: int) -> None:
        self._database, self._files = database, files
        self._max_line = max_line_bytes, max_line_items

    async def create(
        self,
        tenant: Tenant,
        asked: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        once: BatchFields = EACH_TIME,
    ) -> Batch:
        """Validate all lines of a file and create a batch. An invalid line makes the batch `failed`. `asked`: body of
        OpenAI's request. `headers`: headers for every line. `once`: idempotency fields. Raises BadRequest, NotFound,
        LimitExceeded, KeyReused."""
        if known := await self._database.run(lambda connection: rows.made(connection, once), writes=False):
            return known
        wish = options.read(asked)
        file = await self._files.get(tenant.viewer, wish.input_file_id)
        if file.purpose != "batch":
            raise BadRequest(f"The file's purpose is {file.purpose}; upload it with purpose batch.", param="purpose")
        try:
            checked = await asyncio.to_thread(check, self._files.path(file.id), FORMS[wish.endpoint], *self._max_line)
        except FileNotFoundError:
            raise NotFound(f"The bytes of {file.id} are not on this host.", param="input_file_id") from None
        now, bad = time.time(), bool(checked.problems)
        batch = Batch(
            id=f"batch_{new_id()}",
            team=tenant.team,
            key_id=tenant.key.lineage,
            status="failed" if bad else "validating",
            endpoint=wish.endpoint,
            input_file_id=file.id,
            metadata=orjson.dumps(wish.metadata).decode(),
            total=0 if bad else checked.total,
            created_at=now,
            expires_at=now + WINDOW_S,
            finished_at=now if bad else None,
            errors=orjson.dumps(checked.problems).decode() if bad else None,
            headers=orjson.dumps(headers or {}).decode(),
            model=next(iter(checked.models))[:200] if len(checked.models) == 1 else None,
            output_expires_s=wish.output_expires_s,
            idempotency=once.idempotency,
            fingerprint=once.fingerprint,
            owner=tenant.key.lineage,
        )
        return await rows.keep(self._database, batch)

    async def get(self, viewer: Viewer, batch_id: str) -> Batch:
        """The batch with this id. Raises NotFound."""
        return await self._database.run(lambda connection: rows.get(connection, viewer, batch_id), writes=False)

    async def page(self, viewer: Viewer, page: Page) -> list[Batch]:
        """The batches of one page, and one further batch if there are more pages."""
        query = page.of(batches, viewer, family(""))
        found = await self._database.run(lambda connection: connection.execute(query).all(), writes=False)
        return [Batch(**row._mapping) for row in found]

    async def cancel(self, viewer: Viewer, batch_id: str) -> Batch:
        """Cancel a batch. Raises NotFound; BadRequest if the batch has ended or every line has a result."""
        now = time.time()
        return await self._database.run(lambda connection: rows.cancel(connection, viewer, batch_id, now))

    async def unfinished(self) -> list[Batch]:
        """Unfinished batches of all teams and both APIs, oldest first."""
        query = select(batches).where(batches.c.status.in_(OPEN)).order_by(batches.c.created_at, batches.c.id)
        found = await self._database.run(lambda connection: connection.execute(query).all(), writes=False)
        return [Batch(**row._mapping) for row in found]

    async def begin(self, batch: Batch) -> bool:
        """Store that a runner has taken the batch. Returns False if the batch has ended."""
        start = update(batches).where(batches.c.id == batch.id, batches.c.status == "validating")

        def work(connection: Connection) -> bool:
            connection.execute(start.values(status="in_progress", started_at=time.time()))
            return rows.get(connection, Viewer(batch.team), batch.id, batch.endpoint).status in OPEN

        return await self._database.run(work)

    async def count(self, counts: Mapping[str, tuple[int, int]]) -> None:
        """Store the progress of batches. `counts`: batch id → number of lines (completed, failed)."""

        def work(connection: Connection) -> None:
            for batch_id, (completed, failed) in counts.items():
                connection.execute(still_open(batch_id).values(completed=completed, failed=failed))

        await self._database.run(work)

    async def finalize(self, batch: Batch, counts: tuple[int, int]) -> None:
        """Mark the batch as `finalizing`: every line has a result, and only the result files are not stored yet."""
        now = time.time()
        done = still_open(batch.id).where(batches.c.status == "in_progress")
        done = done.values(status="finalizing", finalizing_at=now, completed=counts[0], failed=counts[1])
        await self._database.run(lambda connection: connection.execute(done))

    async def finish(self, batch: Batch, ended: Ended) -> None:
        """Store the result files and the end of the batch in one transaction. If the batch has already ended, nothing
        changes."""
        now = time.time()
        kinds = [kind for kind, size in ended.sizes.items() if size]
        values: dict[str, Any] = {f"{kind}_file_id": batch.result_id(kind) for kind in kinds}
        values |= {"status": ended.status, "completed": ended.counts[0], "failed": ended.counts[1], "finished_at": now}
        values |= {"unsent": ended.unsent, "usage": orjson.dumps(ended.usage).decode() if ended.usage else None}

        def work(connection: Connection) -> None:
            if connection.execute(still_open(batch.id).values(values)).rowcount:
                for kind in kinds:
                    record(connection, _result(batch, kind, ended.sizes[kind], now))

        await self._database.run(work)
        if batch.endpoint == MESSAGES:  # no client can read the requests any more
            await self._files.forget([batch.input_file_id])


def _result(batch: Batch, kind: str, size: int, now: float) -> StoredFile:
    inline = batch.endpoint == MESSAGES
    expires = batch.kept_until if inline else now + batch.output_expires_s if batch.output_expires_s else None
    return StoredFile(
        id=batch.result_id(kind),
        team=batch.team,
        key_id=batch.key_id,
        filename=f"{batch.id}_{kind}.jsonl",
        purpose=INLINE if inline else "batch_output",
        bytes=size,
        created_at=now,
        expires_at=expires,
        owner=batch.owner,
    )
