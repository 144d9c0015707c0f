"""What every worker knows of a stored answer, and how that reads on the index log; the answer lies elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from gateway.cache.key import Question

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Entry:
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


def encode(entry: Entry, author: str) -> dict[str | bytes, bytes]:
    """Fields of the log entry; the vector goes as float16."""
    meta = {
        "team": entry.team,
        "tags": entry.tags,
        "asked": entry.asked_at,
        "expires": entry.expires_at,
        "size": entry.size,
        "author": author,
    }
    fields: dict[str | bytes, bytes] = {"op": b"put", "digest": entry.digest, "meta": orjson.dumps(meta)}
    if entry.question is not None and entry.vector is not None:
        fields["partition"] = entry.question.partition
        fields["text"] = entry.question.text.encode()
        fields["vector"] = entry.vector.astype(np.float16).tobytes()
    return fields


def encode_flush(flush: Flush) -> dict[str | bytes, bytes]:
    return {"op": b"flush", "meta": orjson.dumps({"team": flush.team, "before": flush.before, "tag": flush.tag})}


def decode(fields: Mapping[bytes, bytes]) -> tuple[Entry | Flush, str]:
    """The entry or flush, and its author. Raises KeyError or ValueError for what no worker of ours wrote."""
    meta: dict[str, Any] = orjson.loads(fields[b"meta"])
    if fields[b"op"] == b"flush":
        return Flush(meta["team"], meta["before"], meta["tag"]), ""
    question = vector = None
    if b"vector" in fields:
        question = Question(fields[b"partition"], fields[b"text"].decode())
        vector = np.frombuffer(fields[b"vector"], dtype=np.float16).astype(np.float32)
    entry = Entry(
        digest=fields[b"digest"],
        team=meta["team"],
        tags=tuple(meta["tags"]),
        asked_at=meta["asked"],
        expires_at=meta["expires"],
        size=meta["size"],
        question=question,
        vector=vector,
    )
    return entry, meta["author"]
