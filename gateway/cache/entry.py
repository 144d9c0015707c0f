"""The metadata of a stored answer, which every worker keeps, and their encoding in the index log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from gateway.cache.keys import Question
from gateway.cache.packing import BYTES_PER_DIMENSION


class Entry(NamedTuple):
    """The metadata of a stored answer. Two entries are equal only if they are the same object."""

    digest: bytes
    team: str
    tags: tuple[str, ...]
    asked_at: float
    """Unix time of the look-up that missed. If a flush happens after this time, the flush also deletes this answer."""
    expires_at: float
    size: int
    """Bytes of the stored answer."""
    question: Question | None = None
    vector: bytes | None = None
    """The vector of the question, encoded by `pack`; None if there is no vector."""
    place: str = ""
    """Name of the bundle on the state server that contains the answer."""
    worth_pico: int = 0
    """Cost that one hit saves, in pico-dollars."""
    asker: str = ""
    """Hash of the end user or session that sent the question; empty if unknown."""


class Found(NamedTuple):
    """A stored entry whose question was found to be similar to the new question."""

    digest: bytes
    score: float
    """The verifier's confidence that the answer is right, from 0 to 1."""
    cosine: float
    asker: str = ""
    """Hash of the end user or session that sent the stored question; empty if unknown."""
    promoted: bool = False
    """Whether the entry is a hit although its score is below the threshold. Set if a comparison has shown that its
    answer equals a fresh answer."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A group of answers that were stored together."""

    name: str
    """The unique name of the group."""
    place: str
    epoch: str
    """The state server's epoch when the answers were stored. If the state server has a later epoch now, it has lost
    data since, perhaps also a flush."""
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class Flush:
    """Deletes answers of `team`; empty: of all teams. `before`: only answers looked up before this time (Unix seconds).
    `tag`, `prefix`: only answers with this tag, or with a tag that begins with `prefix`."""

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
    """Reports that a worker has deleted answers that it had stored. Each answer is named by its digest and its
    bundle on the state server.
    """

    entries: Sequence[tuple[bytes, str]]


@dataclass(frozen=True, slots=True)
class Wrong:
    """Reports that a request of `team` got a wrong answer from the cache. Only the worker that served the request knows
    which answer it was."""

    request_id: str
    team: str


class Check(NamedTuple):
    """The result of checking one hit, by a fresh answer or by a client's report that the hit is wrong."""

    scope: str
    score: float
    wrong: bool
    probability: float
    """The probability with which a hit of this kind is selected for a comparison."""
    key: str = ""
    """The API key whose client reported the hit as wrong. Empty if the hit was compared with a fresh answer."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A worker's report about checked hits. It contains the worker's totals by scope, and all checks since its last
    report."""

    author: str
    totals: Mapping[str, Sequence[float]]
    checks: Sequence[Check]


def encode(batch: Batch) -> dict[str | bytes, bytes]:
    """The fields of a batch's log entry. All vectors are in one field, one after the other."""
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
    values = {"team": flush.team, "before": flush.before, "tag": flush.tag, "prefix": flush.prefix}
    return {"op": b"flush", "meta": orjson.dumps(values)}


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
    """The name of a batch, read without decoding the other fields. Empty if the log entry has no name."""
    return fields.get(b"name", b"")


def decode(fields: Mapping[bytes, bytes]) -> Batch | Flush | Gone | Wrong | Judged:
    """The change that a log entry describes. Raises KeyError, TypeError or ValueError if no worker can have written
    the entry.
    """
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
        worth = more.pop(0) if len(more) % 3 else 0  # entries of earlier versions have no worth, or no asker
        asker = more.pop() if len(more) > 3 else ""
        if more:
            partition, text, dimensions = more
            question, end = Question(bytes.fromhex(partition), text), start + BYTES_PER_DIMENSION * dimensions
            vector, start = bytes(vectors[start:end]), end
        known = (bytes.fromhex(digest), team, tuple(tags), asked_at, expires_at, size)
        entries.append(Entry(*known, question, vector, place, worth, asker))
    return Batch(name_of(fields).decode(), place, epoch, entries)
