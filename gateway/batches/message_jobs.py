"""Handles batches of Anthropic's API. One request body contains all requests of a batch. Clients read the results
directly, and not as files.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import orjson
from sqlalchemy import Connection, delete

from gateway.batches import batch as rows
from gateway.batches.batch import EACH_TIME, WINDOW_S, Batch, BatchFields, family
from gateway.batches.files import GONE_S, INLINE, OPEN, Files, Page, Upload, new_id
from gateway.batches.forms import FORMS, MESSAGES
from gateway.batches.lines import Checked, check
from gateway.domain.tenant import Tenant, Viewer
from gateway.errors import BadRequest, NotFound
from gateway.state.sql.database import Database
from gateway.state.sql.tables import batches

_PIECE = 2**18


class MessageJobs:
    """Creates, lists, cancels and deletes batches of Anthropic's API. It does not find batches of OpenAI's API."""

    def __init__(self, database: Database, files: Files, *, max_line_bytes: int, max_line_items: int) -> None:
        self._database, self._files = database, files
        self._max_line = max_line_bytes, max_line_items

    async def create(
        self, tenant: Tenant, upload: Upload, headers: Mapping[str, str], once: BatchFields = EACH_TIME
    ) -> Batch:
        """Create a batch from an upload with one request per line. A mistake in `params` appears later, in the result
        of that request. Raises BadRequest for a line in a wrong format, BodyTooLarge, LimitExceeded, KeyReused."""
        upload.close()
        checked = await asyncio.to_thread(check, upload.path, FORMS[MESSAGES], *self._max_line)
        if checked.problems:
            raise _first_mistake(checked)
        file = await self._files.keep(upload, tenant, "requests.jsonl", INLINE, WINDOW_S + GONE_S)
        now = time.time()
        batch = Batch(
            id=f"msgbatch_{new_id()}",
            team=tenant.team,
            key_id=tenant.key.lineage,
            status="validating",
            endpoint=MESSAGES,
            input_file_id=file.id,
            metadata="{}",
            total=checked.total,
            created_at=now,
            expires_at=now + WINDOW_S,
            headers=orjson.dumps(headers).decode(),
            idempotency=once.idempotency,
            fingerprint=once.fingerprint,
            owner=tenant.key.lineage,
        )
        kept: Batch | None = None
        try:
            kept = await rows.keep(self._database, batch)
            return kept
        finally:
            if kept is not batch:
                await asyncio.shield(self._files.forget([file.id]))

    async def get(self, viewer: Viewer, batch_id: str) -> Batch:
        """The batch with this id. Raises NotFound."""
        return await self._database.run(
            lambda connection: rows.get(connection, viewer, batch_id, MESSAGES), writes=False
        )

    async def page(self, viewer: Viewer, page: Page) -> list[Batch]:
        """The batches of one page, and one further batch if there are more pages."""
        query = page.of(batches, viewer, family(MESSAGES))
        found = await self._database.run(lambda connection: connection.execute(query).all(), writes=False)
        return [Batch(**row._mapping) for row in found]

    async def cancel(self, viewer: Viewer, batch_id: str) -> Batch:
        """Cancel a batch. Raises NotFound; BadRequest if the batch has ended or every line has a result."""
        now = time.time()
        return await self._database.run(lambda connection: rows.cancel(connection, viewer, batch_id, now, MESSAGES))

    async def delete(self, viewer: Viewer, batch_id: str) -> None:
        """Delete a batch and its results. Raises NotFound; BadRequest if the batch has not ended."""

        def work(connection: Connection) -> Batch:
            batch = rows.get(connection, viewer, batch_id, MESSAGES)
            if batch.status in OPEN:
                raise BadRequest(f"{batch_id} is still being processed; cancel it first.", param="message_batch_id")
            connection.execute(delete(batches).where(batches.c.id == batch_id))
            return batch

        batch = await self._database.run(work)
        files = (batch.input_file_id, batch.output_file_id, batch.error_file_id)
        await self._files.forget([file_id for file_id in files if file_id])

    async def results(self, viewer: Viewer, batch_id: str) -> Iterator[bytes]:
        """Iterate over the bytes of all results. Do this in a thread, because it blocks. Raises NotFound if the results
        do not exist yet, were deleted, or are on another host."""
        batch = await self.get(viewer, batch_id)
        if batch.finished_at is None:
            raise NotFound(f"{batch_id} has not ended yet, so it has no results.", param="message_batch_id")
        if archived(batch, time.time()):
            raise NotFound(f"The results of {batch_id} were deleted after 29 days.", param="message_batch_id")
        paths = [self._files.path(name) for name in (batch.output_file_id, batch.error_file_id) if name]
        if not await asyncio.to_thread(lambda: all(path.exists() for path in paths)):
            raise NotFound(f"The results of {batch_id} are not on this host.", param="message_batch_id")
        return _pieces(paths)


def archived(batch: Batch, now: float) -> bool:
    """Return whether the results of the batch were deleted because of their age."""
    return batch.finished_at is not None and now >= batch.kept_until


def _pieces(paths: list[Path]) -> Iterator[bytes]:
    for path in paths:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece


def _first_mistake(checked: Checked) -> BadRequest:
    """Return the first mistake as an error. The error names the mistake's line as Anthropic's clients expect it."""
    problem = checked.problems[0]
    place = FORMS[MESSAGES].place(problem["line"]) if problem["line"] else "requests"
    param = f"{place}.{problem['param']}" if problem["param"] else place
    return BadRequest(f"{param}: {problem['message']}", param=param)
