"""Stores the files that teams upload or that batches produce. The bytes are in one directory, the metadata in SQL."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, Select, Table, delete, func, insert, select

from gateway.domain.tenant import Tenant, Viewer
from gateway.errors import BadRequest, BodyTooLarge, NotFound
from gateway.state.sql.database import Database
from gateway.state.sql.ownership import seen_by
from gateway.state.sql.tables import batches, files

MAX_BYTES = 256 * 10**6
"""Maximum bytes of an upload: the larger of the limits of OpenAI and Anthropic."""
TEAM_BYTES = 5 * 2**30
"""Maximum bytes of all files of a team. A full disk would stop the journal and so all requests."""
ABANDONED_S = 3600.0
GONE_S = 3600.0
"""Seconds after a file's expiry after which its row is deleted even if its bytes are on another host."""
OPEN = ("validating", "in_progress", "finalizing", "cancelling")
"""States of a batch that has not ended. Such a batch still needs its input file."""
INLINE = "message_batch"
"""Purpose of the files of message batches, which clients send in a request's body. Clients cannot see these files."""


def new_id() -> str:
    """Make an id for a new file. Ids sort by the time of their creation and cannot be guessed."""
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A row of the table `files`."""

    id: str
    team: str
    key_id: str
    filename: str
    purpose: str
    bytes: int
    created_at: float
    expires_at: float | None = None
    owner: str = ""
    """Lineage of the key that may see the file. If it is empty, all keys of the team may see the file."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list: the next `limit` rows after the id `after`, in the order of their ids."""

    limit: int = 20
    after: str = ""
    ascending: bool = False
    purpose: str = ""

    def of(self, table: Table, viewer: Viewer, *more: ColumnElement[bool]) -> Select[tuple[object, ...]]:
        """The SQL query for the rows of this page in `table` that `viewer` may see. If there are more pages, the
        query also returns one further row.
        """
        query = select(table).where(seen_by(table, viewer), *more).limit(self.limit + 1)
        if self.purpose:
            query = query.where(table.c.purpose == self.purpose)
        if self.after:
            query = query.where(table.c.id > self.after if self.ascending else table.c.id < self.after)
        return query.order_by(table.c.id if self.ascending else table.c.id.desc())


class Upload:
    """A file that a client is uploading. Clients cannot refer to the file before `Files.keep` has given it an id."""

    def __init__(self, path: Path) -> None:
        self.path, self.size = path, 0
        self.digest = blake2b(digest_size=16)
        """Digest of the bytes that were written so far."""
        self._file = path.open("xb")

    def write(self, data: bytes) -> None:
        """Append `data` to the file. This blocks. Raises BodyTooLarge."""
        self.size += len(data)
        if self.size > MAX_BYTES:
            raise BodyTooLarge(f"The file is larger than {MAX_BYTES} bytes; split it.", param="file")
        self._file.write(data)
        self.digest.update(data)

    def close(self) -> None:
        self._file.close()

    def discard(self) -> None:
        """Delete the uploaded bytes. Does nothing if `Files.keep` has already turned the upload into a file."""
        self.close()
        self.path.unlink(missing_ok=True)


class Files:
    """Reads and writes files. If a caller may not see a file, the file counts as missing."""

    def __init__(self, directory: Path, database: Database) -> None:
        self.directory, self._database = directory, database

    async def open(self) -> None:
        """Create the directory, and delete the remains of uploads that a crash interrupted. Raises OSError."""
        await asyncio.to_thread(self._tidy)

    async def aclose(self) -> None:
        """Does nothing, because no resource stays open between calls."""

    def _tidy(self) -> None:
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in self.directory.glob("*.part"):
            if left.stat().st_mtime < time.time() - ABANDONED_S:  # another worker may still be writing a younger one
                left.unlink(missing_ok=True)

    def path(self, file_id: str) -> Path:
        """Path of the file with this id. Use it only for ids that the gateway has generated."""
        return self.directory / file_id

    @asynccontextmanager
    async def upload(self) -> AsyncIterator[Upload]:
        """Open an upload as a context manager. If `keep` is not called inside the context, the uploaded bytes are
        deleted."""
        upload = await asyncio.to_thread(Upload, self.directory / f"{new_id()}.part")
        try:
            yield upload
        finally:
            await asyncio.shield(asyncio.to_thread(upload.discard))

    async def keep(
        self, upload: Upload, tenant: Tenant, filename: str, purpose: str, expires_s: float | None = None
    ) -> StoredFile:
        """Turn an upload into a stored file. Raises BodyTooLarge if the team would have files with more than TEAM_BYTES
        bytes in total."""
        now = time.time()
        file = StoredFile(
            id=f"file-{new_id()}",
            team=tenant.team,
            key_id=tenant.key.lineage,
            filename=filename[-255:],
            purpose=purpose,
            bytes=upload.size,
            created_at=now,
            expires_at=None if expires_s is None else now + expires_s,
            owner=tenant.key.lineage,
        )

        def work(connection: Connection) -> None:
            upload.close()
            held = connection.scalar(select(func.sum(files.c.bytes)).where(files.c.team == file.team)) or 0
            if held + file.bytes > TEAM_BYTES:
                raise BodyTooLarge(
                    f"Your team has stored {held} of {TEAM_BYTES} bytes in files; delete some.", param="file"
                )
            record(connection, file)
            upload.path.rename(self.path(file.id))

        await self._database.run(work)
        return file

    async def get(self, viewer: Viewer, file_id: str) -> StoredFile:
        """The metadata of a file. Raises NotFound."""
        return await self._database.run(lambda connection: find(connection, viewer, file_id), writes=False)

    async def page(self, viewer: Viewer, page: Page) -> list[StoredFile]:
        """The files of one page, and one further file if there are more pages."""
        query = page.of(files, viewer, *_seen())
        rows = await self._database.run(lambda connection: connection.execute(query).all(), writes=False)
        return [StoredFile(**row._mapping) for row in rows]

    async def delete(self, viewer: Viewer, file_id: str) -> None:
        """Delete a file. Raises NotFound; BadRequest if a batch still needs it."""

        def work(connection: Connection) -> None:
            find(connection, viewer, file_id, lock=True)
            reader = connection.scalar(select(batches.c.id).where(_reads(file_id)).limit(1))
            if reader is not None:
                raise BadRequest(f"The batch {reader} still needs this file; cancel it first.", param="file_id")
            connection.execute(delete(files).where(files.c.id == file_id))

        await self._database.run(work)
        await asyncio.to_thread(self.path(file_id).unlink, missing_ok=True)

    async def forget(self, file_ids: Sequence[str]) -> None:
        """Delete files and their rows, without checking who owns them or whether a batch needs them. Unknown ids are
        ignored."""
        gone = delete(files).where(files.c.id.in_(file_ids))
        await self._database.run(lambda connection: connection.execute(gone))
        await asyncio.to_thread(self._unlink, file_ids)

    async def sweep(self, now: float) -> None:
        """Delete expired files that no batch needs. If the file is on another host, its row is deleted GONE_S seconds
        after it expired."""
        late = select(files.c.id, files.c.expires_at).where(
            files.c.expires_at <= now, ~select(batches.c.id).where(_reads(files.c.id)).exists()
        )
        rows = await self._database.run(lambda connection: connection.execute(late).all(), writes=False)
        if rows:
            here = await asyncio.to_thread(lambda: {row.id for row in rows if self.path(row.id).exists()})
            await self.forget([row.id for row in rows if row.id in here or row.expires_at <= now - GONE_S])

    def _unlink(self, file_ids: Sequence[str]) -> None:
        for file_id in file_ids:
            self.path(file_id).unlink(missing_ok=True)


def _seen() -> tuple[ColumnElement[bool], ...]:
    """The SQL conditions for files that clients can see and that have not expired."""
    return files.c.purpose != INLINE, files.c.expires_at.is_(None) | (files.c.expires_at > time.time())


def _reads(file_id: object) -> ColumnElement[bool]:
    """The SQL condition for unfinished batches that still need the file `file_id`."""
    return (batches.c.input_file_id == file_id) & batches.c.status.in_(OPEN)


def find(connection: Connection, viewer: Viewer, file_id: str, *, lock: bool = False) -> StoredFile:
    """The row of a file. `lock`: whether to keep others from deleting the row until the transaction ends. Raises
    NotFound."""
    query = select(files).where(files.c.id == file_id, seen_by(files, viewer), *_seen())
    row = connection.execute(query.with_for_update() if lock else query).first()
    if row is None:
        raise NotFound(f"No such File object: {file_id}.", param="file_id")
    return StoredFile(**row._mapping)


def record(connection: Connection, file: StoredFile) -> None:
    """Insert the row of a file. After this, the file's team can see the file."""
    connection.execute(insert(files).values({name: getattr(file, name) for name in StoredFile.__slots__}))
