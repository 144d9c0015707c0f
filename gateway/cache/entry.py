"""What every worker knows of a stored answer, and how that reads on the index log; the answer lies elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from gateway.cache.embedder import Vector
from gateway.cache.key import Question


class Entry(NamedTuple):
    """A tuple because every request makes one. Entries are told apart by identity, never compared."""

    digest: bytes
    team: str
    tags: tuple[str, ...]
    asked_at: float
    """Unix seconds of the look-up that missed: an answer asked for before a flush is gone with it."""
    expires_at: float
    size: int
    """Bytes of the stored answer."""
    question: Question | None = None
    vector: Vector | None = None
    place: str = ""
    """The bundle that holds the answer."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Answers that were stored together."""

    name: str
    """No two batches have one."""
    place: str
    epoch: str
    """Of the server when they were stored: one that lost its data since may have lost a flush that covered them."""
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class Flush:
    """Forget what `team` stored and asked for no later than `before`, with `tag` if one is given."""

    team: str
    before: float
    tag: str | None = None

    def covers(self, entry: Entry) -> bool:
        return (
            entry.team == self.team and entry.asked_at <= self.before and (self.tag is None or self.tag in entry.tags)
        )


def encode(batch: Batch) -> dict[str | bytes, bytes]:
    """Fields of the log entry; the vectors go as float16, one after the other."""
    vectors = [entry.vector.astype("float16").tobytes() for entry in batch.entries if entry.vector is not None]
    fields: dict[str | bytes, bytes] = {
        "name": batch.name.encode(),
        "op": b"put",
        "meta": orjson.dumps([batch.place, batch.epoch, [_row(entry) for entry in batch.entries]]),
    }
    if vectors:
        fields["vectors"] = b"".join(vectors)
    return fields


def _row(entry: Entry) -> tuple[Any, ...]:
    digest, team, tags, asked_at, expires_at, size, question, vector, _ = entry
    if question is None or vector is None:
        return digest.hex(), team, tags, asked_at, expires_at, size
    return digest.hex(), team, tags, asked_at, expires_at, size, question.partition.hex(), question.text, len(vector)


def encode_flush(flush: Flush) -> dict[str | bytes, bytes]:
    return {"op": b"flush", "meta": orjson.dumps({"team": flush.team, "before": flush.before, "tag": flush.tag})}


def name_of(fields: Mapping[bytes, bytes]) -> bytes:
    """The batch's name, read without reading the batch; empty for a flush."""
    return fields.get(b"name", b"")


def decode(fields: Mapping[bytes, bytes]) -> Batch | Flush:
    """Raises KeyError, TypeError or ValueError for what no worker of ours wrote."""
    meta: Any = orjson.loads(fields[b"meta"])
    if fields[b"op"] == b"flush":
        return Flush(meta["team"], meta["before"], meta["tag"])
    place, epoch, rows = meta
    vectors = memoryview(fields.get(b"vectors", b""))
    entries, start = [], 0
    for digest, team, tags, asked_at, expires_at, size, *more in rows:
        question = vector = None
        if more:
            partition, text, dimensions = more
            question, end = Question(bytes.fromhex(partition), text), start + 2 * dimensions
            vector, start = _read(vectors[start:end]), end
        entries.append(
            Entry(bytes.fromhex(digest), team, tuple(tags), asked_at, expires_at, size, question, vector, place)
        )
    return Batch(name_of(fields).decode(), place, epoch, entries)


def _read(packed: memoryview) -> Vector:
    import numpy as np  # not for those whose log holds no vectors

    return np.frombuffer(packed, dtype=np.float16).astype(np.float32)
