"""Files that teams upload or batches make: bytes in one directory, what is known of them in SQL."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Select, Table, delete, func, insert, select

from gateway.domain.tenant import Tenant
from gateway.errors import BadRequest, BodyTooLarge, NotFound
from gateway.state.sql import Database
from gateway.state.tables import batches, files

MAX_BYTES = 100 * 2**20
"""Of one upload."""
TEAM_BYTES = 5 * 2**30
"""Of all files of a team: whoever fills the disk stops the journal, and with it everybody's requests."""
ABANDONED_S = 3600.0
OPEN = ("validating", "in_progress", "cancelling")
"""States of a batch in which its file is still needed."""


def new_id() -> str:
    """Sortable by time and unguessable."""
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A row of `files`."""

    id: str
    team: str
    key_id: str
    filename: str
    purpose: str
    bytes: int
    created_at: float


@dataclass(frozen=True, slots=True)
class Page:
    """What a list shows: rows of one team after the id `after`."""

    limit: int = 20
    after: str = ""
    ascending: bool = False
    purpose: str = ""

    def of(self, table: Table, team: str) -> Select[tuple[object, ...]]:
        """One row more than asked for, which tells whether there are more. Ids sort by time."""
        query = select(table).where(table.c.team == team).limit(self.limit + 1)
        if self.purpose:
            query = query.where(table.c.purpose == self.purpose)
        if self.after:
            query = query.where(table.c.id > self.after if self.ascending else table.c.id < self.after)
        return query.order_by(table.c.id if self.ascending else table.c.id.desc())


class Upload:
    """Bytes on their way in, under a name that nobody is told."""

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, 0
        self._file = path.open("xb")

    def write(self, data: bytes) -> None:
        """Off the loop only. Raises BodyTooLarge."""
        self.size += len(data)
        if self.size > MAX_BYTES:
            raise BodyTooLarge(f"The file is larger than {MAX_BYTES} bytes; split it.", param="file")
        self._file.write(data)

    def close(self) -> None:
        self._file.close()

    def discard(self) -> None:
        """Safe after it was kept: then nothing has this name any more."""
        self.close()
        self.path.unlink(missing_ok=True)


class Files:
    """Other teams' files do not exist, whatever one knows of them."""

    def __init__(self, directory: Path, database: Database) -> None:
        self.directory, self._database = directory, database

    async def open(self) -> None:
        """Make the directory, remove what uploads left that a crash cut short. Raises OSError."""
        await asyncio.to_thread(self._tidy)

    async def aclose(self) -> None:
        """Nothing is held open between two calls."""

    def _tidy(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in self.directory.glob("*.part"):
            if left.stat().st_mtime < time.time() - ABANDONED_S:  # a younger one may be another worker's
                left.unlink(missing_ok=True)

    def path(self, file_id: str) -> Path:
        """Only for ids that the gateway made itself."""
        return self.directory / file_id

    @asynccontextmanager
    async def upload(self) -> AsyncIterator[Upload]:
        """A place to write to; what is not kept by the end is gone."""
        upload = await asyncio.to_thread(Upload, self.directory / f"{new_id()}.part")
        try:
            yield upload
        finally:
            await asyncio.shield(asyncio.to_thread(upload.discard))

    async def keep(self, upload: Upload, tenant: Tenant, filename: str, purpose: str) -> StoredFile:
        """Raises BodyTooLarge when the team has too much already."""
        file = StoredFile(
            f"file-{new_id()}", tenant.team, tenant.key.id, filename[-255:], purpose, upload.size, time.time()
        )

        def work(connection: Connection) -> None:
            upload.close()
            held = connection.scalar(select(func.sum(files.c.bytes)).where(files.c.team == file.team)) or 0
            if held + file.bytes > TEAM_BYTES:
                raise BodyTooLarge(f"Your team holds {held} of {TEAM_BYTES} bytes in files; delete some.", param="file")
            record(connection, file)
            upload.path.rename(self.path(file.id))

        await self._database.run(work)
        return file

    async def get(self, team: str, file_id: str) -> StoredFile:
        """Raises NotFound."""
        return await self._database.run(lambda connection: find(connection, team, file_id), writes=False)

    async def page(self, team: str, page: Page) -> list[StoredFile]:
        """At most one more than `page.limit`."""
        rows = await self._database.run(lambda connection: connection.execute(page.of(files, team)).all(), writes=False)
        return [StoredFile(**row._mapping) for row in rows]

    async def delete(self, team: str, file_id: str) -> None:
        """Raises NotFound, BadRequest while a batch still reads it."""

        def work(connection: Connection) -> None:
            find(connection, team, file_id, lock=True)
            reader = connection.scalar(
                select(batches.c.id).where(batches.c.input_file_id == file_id, batches.c.status.in_(OPEN)).limit(1)
            )
            if reader is not None:
                raise BadRequest(f"The batch {reader} still reads this file; cancel it first.", param="file_id")
            connection.execute(delete(files).where(files.c.id == file_id))

        await self._database.run(work)
        await asyncio.to_thread(self.path(file_id).unlink, missing_ok=True)


def find(connection: Connection, team: str, file_id: str, *, lock: bool = False) -> StoredFile:
    """With `lock`, nobody deletes it before the transaction ends. Raises NotFound."""
    query = select(files).where(files.c.id == file_id, files.c.team == team)
    row = connection.execute(query.with_for_update() if lock else query).first()
    if row is None:
        raise NotFound(f"No such File object: {file_id}.", param="file_id")
    return StoredFile(**row._mapping)


def record(connection: Connection, file: StoredFile) -> None:
    """Make it visible to its team."""
    connection.execute(insert(files).values({name: getattr(file, name) for name in StoredFile.__slots__}))
