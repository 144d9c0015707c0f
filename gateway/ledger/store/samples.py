"""Stores samples in SQL: compared requests with their answers. They are kept for learning if the team's policy allows
it.

A sample contains neither the name of an end user nor a key. It is deleted when it expires.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Connection, delete, func, insert, select

from gateway.state.sql.tables import samples

TEAM_BYTES = 256 * 2**20
"""Maximum bytes of a team's samples. Beyond it, the team's oldest samples are deleted."""


@dataclass(frozen=True, slots=True)
class KeptSample:
    """A compared request with its answers, which is stored for learning."""

    request_id: str
    traffic_class: str
    request: dict[str, Any]
    """The request as the body of a chat completion, without model and names: `messages`, `tools`, `response_format`."""
    answers: list[dict[str, Any]]
    """The compared answers, each with `backend`, `choices` (as in a chat completion) and `finish`. The reference's
    answer is the first one."""
    judge: str
    score: float | None
    """How good the second answer is, 0..1, compared with the first; None if the judge was undecided."""


def keep(connection: Connection, team: str, sample: KeptSample, now: float, expires_at: float) -> None:
    """Store a sample. It replaces an earlier sample of the same request."""
    content = {
        "request": sample.request, "answers": sample.answers, "judge": sample.judge, "score": sample.score
    }  # fmt: skip
    body = zlib.compress(orjson.dumps(content), 1)
    connection.execute(delete(samples).where(samples.c.team == team, samples.c.request_id == sample.request_id))
    connection.execute(
        insert(samples).values(
            team=team, request_id=sample.request_id, at=now, expires_at=expires_at,
            traffic_class=sample.traffic_class, bytes=len(body), body=body,
        )
    )  # fmt: skip


def read(connection: Connection, team: str, now: float) -> Iterator[KeptSample]:
    """Yield the team's samples that have not expired, oldest first."""
    c = samples.c
    query = select(c.request_id, c.traffic_class, c.body).where(c.team == team, c.expires_at > now)
    for request_id, traffic_class, body in connection.execute(query.order_by(c.at, c.request_id)):
        found = orjson.loads(zlib.decompress(body))
        yield KeptSample(request_id, traffic_class, **found)


def held(connection: Connection, team: str) -> int:
    """The size of all samples of the team, in bytes."""
    return connection.scalar(select(func.sum(samples.c.bytes)).where(samples.c.team == team)) or 0


def forget(connection: Connection, team: str) -> int:
    """Delete all samples of a team, and return their number."""
    return connection.execute(delete(samples).where(samples.c.team == team)).rowcount


def tidy(connection: Connection, now: float) -> int:
    """Delete the expired samples, and the oldest samples of teams whose samples are too large. Returns the number of
    deleted samples."""
    c = samples.c
    gone = connection.execute(delete(samples).where(c.expires_at <= now)).rowcount
    held = connection.execute(select(c.team, func.sum(c.bytes)).group_by(c.team)).all()
    for team, total in held:
        over = total - TEAM_BYTES
        for request_id, size in connection.execute(
            select(c.request_id, c.bytes).where(c.team == team).order_by(c.at)
        ).all():
            if over <= 0:
                break
            gone += connection.execute(delete(samples).where(c.team == team, c.request_id == request_id)).rowcount
            over -= size
    return gone
