"""Metadata of a stored answer, which each worker holds, and its encoding on the index log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from gateway.cache.keys import Question
from gateway.cache.packing import BYTES_PER_DIMENSION


class Entry(NamedTuple):
    """A tuple, because every stored answer has one in memory. Entries are compared by identity only."""

    digest: bytes
    team: str
    tags: tuple[str, ...]
    asked_at: float
    """When the look-up missed (Unix seconds). A later flush covers the answer."""
    expires_at: float
    size: int
    """Bytes of the stored answer."""
    question: Question | None = None
    vector: bytes | None = None
    """The question's vector, as `pack` encodes it."""
    place: str = ""
    """The bundle on the state server that holds the answer."""
    worth_pico: int = 0
    """Cost that a hit saves, pico-dollars."""
    asker: str = ""
    """The end user or session that asked the question, see `keys.asker`; empty: unknown."""


class Found(NamedTuple):
    """A stored entry whose question resembles the one that is asked."""

    digest: bytes
    score: float
    """The verifier's certainty, 0..1."""
    cosine: float
    asker: str = ""
    """The `asker` of the entry."""
    promoted: bool = False
    """Whether it is a hit because a near miss has confirmed its answer, although the threshold is above its score."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Answers that were stored together."""

    name: str
    """Unique name of the batch."""
    place: str
    epoch: str
    """The server's epoch at that time. If the server has lost its data since, it may also have lost a flush."""
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class Flush:
    """Deletes answers asked for until `before`: of `team`, with `tag`, with a tag that begins with `prefix`. Empty or
    None: any."""

    team: str
    before: float
    tag: str | None = None
    prefix: str | None = None

    def covers(self, entry: Entry) -> bool:
        return (
            entry.asked_at <= self.before
            and (not self.team or entry.team == self.team)
            and (self.tag is None or self.tag in entry.tags)
            and (self.prefix is None or any(tag.startswith(self.prefix) for tag in entry.tags))
        )


@dataclass(frozen=True, slots=True)
class Gone:
    """Answers that their worker has deleted, by digest and place. An answer stored again since has another place."""

    entries: Sequence[tuple[bytes, str]]


@dataclass(frozen=True, slots=True)
class Wrong:
    """The answer that this request of `team` got from the cache was wrong. The worker that gave it knows which
    answer."""

    request_id: str
    team: str


class Check(NamedTuple):
    """A hit that was compared with a fresh answer, or that its client reported as wrong."""

    scope: str
    score: float
    wrong: bool
    probability: float
    """The probability with which such hits are checked."""
    key: str = ""
    """The key whose client reported it as wrong; empty: it was compared."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A worker's results of checking hits: totals by scope, and the single checks since its last report."""

    author: str
    totals: Mapping[str, Sequence[float]]
    checks: Sequence[Check]


def encode(batch: Batch) -> dict[str | bytes, bytes]:
    """Fields of the log entry; all vectors in one field, one after the other."""
    vectors = [entry.vector for entry in batch.entries if entry.question is not None and entry.vector is not None]
    fields: dict[str | bytes, bytes] = {
        "name": batch.name.encode(),
        "op": b"put",
        "meta": orjson.dumps([batch.place, batch.epoch, [_row(entry) for entry in batch.entries]]),
    }
    if vectors:
        fields["vectors"] = b"".join(vectors)
    return fields


def _row(entry: Entry) -> tuple[Any, ...]:
    digest, team, tags, asked_at, expires_at, size, question, vector, _, worth, asker = entry
    known = (digest.hex(), team, tags, asked_at, expires_at, size, worth)
    if question is None or vector is None:
        return known
    return *known, question.partition.hex(), question.text, len(vector) // BYTES_PER_DIMENSION, asker


def encode_flush(flush: Flush) -> dict[str | bytes, bytes]:
    told = {"team": flush.team, "before": flush.before, "tag": flush.tag, "prefix": flush.prefix}
    return {"op": b"flush", "meta": orjson.dumps(told)}


def encode_gone(name: str, entries: Iterable[Entry]) -> dict[str | bytes, bytes]:
    meta = orjson.dumps([(entry.digest.hex(), entry.place) for entry in entries])
    return {"name": name.encode(), "op": b"gone", "meta": meta}


def encode_wrong(wrong: Wrong) -> dict[str | bytes, bytes]:
    return {"op": b"wrong", "meta": orjson.dumps((wrong.request_id, wrong.team))}


def encode_judged(judged: Judged) -> dict[str | bytes, bytes]:
    return {
        "op": b"judged",
        "meta": orjson.dumps((judged.author, dict(judged.totals), [tuple(check) for check in judged.checks])),
    }


def name_of(fields: Mapping[bytes, bytes]) -> bytes:
    """The author's name of a batch, read without decoding the rest; empty if there is none."""
    return fields.get(b"name", b"")


def decode(fields: Mapping[bytes, bytes]) -> Batch | Flush | Gone | Wrong | Judged:
    """The change in a log entry. Raises KeyError, TypeError or ValueError for entries that no worker wrote."""
    meta: Any = orjson.loads(fields[b"meta"])
    if fields[b"op"] == b"flush":
        return Flush(meta["team"], meta["before"], meta["tag"], meta.get("prefix"))
    if fields[b"op"] == b"gone":
        return Gone([(bytes.fromhex(digest), place) for digest, place in meta])
    if fields[b"op"] == b"wrong":
        return Wrong(*meta)
    if fields[b"op"] == b"judged":
        author, totals, checks = meta
        return Judged(author, totals, [Check(*check) for check in checks])
    place, epoch, rows = meta
    vectors = memoryview(fields.get(b"vectors", b""))
    entries, start = [], 0
    for digest, team, tags, asked_at, expires_at, size, *more in rows:
        question = vector = None
        worth = more.pop(0) if len(more) % 3 else 0  # rows of earlier versions have no worth, or no asker
        asker = more.pop() if len(more) > 3 else ""
        if more:
            partition, text, dimensions = more
            question, end = Question(bytes.fromhex(partition), text), start + BYTES_PER_DIMENSION * dimensions
            vector, start = bytes(vectors[start:end]), end
        known = (bytes.fromhex(digest), team, tuple(tags), asked_at, expires_at, size)
        entries.append(Entry(*known, question, vector, place, worth, asker))
    return Batch(name_of(fields).decode(), place, epoch, entries)
