"""Writes the index to a snapshot file. A worker that starts again then needs to read only the end of the index log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import orjson

from gateway.cache.entry import Batch, Entry, Flush, decode, encode
from gateway.cache.store.disk_erasure import DiskErasure
from gateway.state.redis.connection import State
from gateway.state.redis.log import SLICE_S, IndexLog, Position

log = logging.getLogger(__name__)

VERSION = 1
_SUM_BYTES = 32
_ORDER: Literal["little"] = "little"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The index after the log was read up to `position`. The index may also contain some later changes."""

    position: Position
    batches: list[Batch]


def write(path: Path, position: Position, entries: Iterable[Entry]) -> None:
    """Replace the file at `path` atomically. Blocks. Raises OSError.

    Only the owner can read the file, because it contains the texts of questions.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)  # the file mode is 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(bytes(_SUM_BYTES))
            checksum = blake2b(digest_size=_SUM_BYTES)
            for frame in _frames(position, entries):
                checksum.update(frame)
                file.write(frame)
                time.sleep(0)  # lets the thread of the event loop run
            file.seek(0)
            file.write(checksum.digest())
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _frames(position: Position, entries: Iterable[Entry]) -> Iterator[bytes]:
    yield _frame(orjson.dumps({"version": VERSION, **position._asdict()}))
    by_place = sorted(entries, key=lambda entry: entry.place)
    for place, together in groupby(by_place, key=lambda entry: entry.place):
        fields = encode(Batch("", place, position.epoch, list(together)))
        yield _frame(fields["meta"]) + _frame(fields.get("vectors", b""))


def _frame(content: bytes) -> bytes:
    return len(content).to_bytes(4, _ORDER) + content


def read(path: Path) -> Snapshot | None:
    """Read the snapshot; None if there is no usable file. Blocks."""
    try:
        content = memoryview(path.read_bytes())
        if blake2b(content[_SUM_BYTES:], digest_size=_SUM_BYTES).digest() != bytes(content[:_SUM_BYTES]):
            raise ValueError("its checksum is wrong")
        frames = _unframed(content[_SUM_BYTES:])
        head: dict[str, Any] = orjson.loads(next(frames))
        if head.pop("version") != VERSION:
            return None
        head["weights"] = [(entry, weight) for entry, weight in head["weights"]]
        batches = []
        for meta in frames:
            batch = decode({b"op": b"put", b"meta": bytes(meta), b"vectors": bytes(next(frames))})
            assert isinstance(batch, Batch)
            batches.append(batch)
            time.sleep(0)
        return Snapshot(Position(**head), batches)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, LookupError, StopIteration) as error:
        log.warning("%s cannot be used (%s): the whole index log is read", path, error)
        return None


def _unframed(content: memoryview) -> Iterator[memoryview]:
    start = 0
    while start < len(content):
        size = int.from_bytes(content[start : start + 4], _ORDER)
        yield content[start + 4 : start + 4 + size]
        start += 4 + size


@dataclass(frozen=True, slots=True)
class SnapshotWriter:
    """Settings of the snapshot. `path`: the host's snapshot file. `writes`: whether this worker writes the file."""

    path: Path
    writes: bool
    min_entries: int = 200
    """Number of new entries in the log after which a new snapshot is written. One log entry may contain many answers.
    """


class Snapshots:
    """Restores the index from the host's snapshot. In one worker of the host, it also writes new snapshots."""

    def __init__(
        self, keep: SnapshotWriter | None, log: IndexLog, known: Callable[[], Iterable[Entry]], state: State
    ) -> None:
        """`keep`: the snapshot; None: there are no snapshots. `known()` returns all entries of the index.

        The caller must read `log` and apply its changes.
        """
        self._keep, self._log, self._known = keep, log, known
        self._erasure = DiskErasure(state, log) if keep is not None and keep.writes else None
        self._stale = False
        """Whether the file may contain answers that were flushed."""
        self._earlier: Position | None = None
        """Position in the log at the time of the last call of `tidy`. Answers that were being stored at that time, and
        flushes that delete these answers, come after this position."""
        self._written_at = 0
        self._counts = {"restored": 0, "snapshots": 0}

    async def restore(self, put: Callable[[Entry], None]) -> None:
        """Call `put` for each entry of the snapshot. After that, the log is read from the snapshot's position on."""
        if self._keep is None:
            return
        snapshot = await asyncio.to_thread(read, self._keep.path)
        if snapshot is None:
            return
        began = time.perf_counter()
        for batch in snapshot.batches:
            for entry in batch.entries:
                put(entry)
            self._counts["restored"] += len(batch.entries)
            if time.perf_counter() - began > SLICE_S:
                await asyncio.sleep(0)
                began = time.perf_counter()
        self._log.resume(snapshot.position)

    def flushed(self, flush: Flush) -> None:
        """Register a flush. The next call of `tidy` removes the answers that `flush` covers from the disk."""
        if self._erasure is not None:
            self._erasure.note(flush)
            self._stale = True

    async def tidy(self) -> None:
        """Remove flushed content from the disk. Write a new snapshot after a flush, or if the log has enough new
        entries."""
        if self._erasure is not None:
            await self._erasure.tidy()
        earlier, self._earlier = self._earlier, self._log.position if self._log.current else None
        if self._keep is None or not self._keep.writes or earlier is None or self._earlier is None:
            return
        handled = int(self._log.stats()["handled"])
        few = handled - self._written_at < self._keep.min_entries
        if earlier.epoch != self._earlier.epoch or (few and not self._stale):
            return
        stale, self._stale = self._stale, False
        try:
            await asyncio.to_thread(write, self._keep.path, earlier, list(self._known()))  # copied here, on the loop
        except OSError as error:
            log.warning("the snapshot of the cache's index could not be written: %s", error)
            self._stale = self._stale or stale
            return
        self._written_at = handled
        self._counts["snapshots"] += 1

    def stats(self) -> dict[str, int | float | str]:
        return {**self._counts, **(self._erasure.stats() if self._erasure else {})}
