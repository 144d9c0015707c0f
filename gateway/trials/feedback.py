"""What people say of an answer, one voice per key and request, kept beside the decision that it judges."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from gateway.domain.tenant import Tenant
from gateway.errors import BadRequest
from gateway.state.sql import Database
from gateway.state.tables import feedback

RATINGS = {"good": 1.0, "bad": 0.0}


@dataclass(frozen=True, slots=True)
class Voice:
    """One judgement: `score` 0..1, or None when only the cache is judged."""

    score: float | None
    cache: str
    comment: str


def parse(body: Mapping[str, Any]) -> Voice:
    """`{"rating": "good"|"bad"}` or `{"score": 0..1}`, `{"cache": "wrong"}`, `"comment"`. Raises BadRequest."""
    if unknown := body.keys() - {"rating", "score", "cache", "comment"}:
        raise BadRequest(f"unknown key {min(unknown)!r}; give rating, score, cache or comment.", param=min(unknown))
    score = body.get("score")
    if "rating" in body:
        score = RATINGS.get(str(body["rating"]))
        if score is None:
            raise BadRequest(f"rating must be good or bad, not {body['rating']!r}.", param="rating")
    if score is not None and (isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1):
        raise BadRequest(f"score must be a number from 0 to 1, not {score!r}.", param="score")
    cache = body.get("cache", "")
    if cache not in ("", "wrong", "right"):
        raise BadRequest(f"cache must be wrong or right, not {cache!r}.", param="cache")
    if score is None and not cache:
        raise BadRequest("Say something: rating, score or cache.")
    return Voice(None if score is None else float(score), cache, str(body.get("comment", ""))[:1000])


class Feedback:
    """Kept in SQL; what it says of each backend is read back as figures."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._heard = 0

    async def hear(self, tenant: Tenant, flight: Mapping[str, Any], voice: Voice) -> None:
        """Keep a voice on the request that `flight` records; a second one of the same key replaces the first."""
        attempts = flight["attempts"]

        def keep(connection: Connection) -> None:
            connection.execute(
                delete(feedback).where(feedback.c.request_id == flight["id"], feedback.c.key_id == tenant.key.id)
            )
            connection.execute(
                insert(feedback).values(
                    at=time.time(),
                    request_id=flight["id"],
                    team=tenant.team,
                    key_id=tenant.key.id,
                    backend=attempts[-1]["backend"] if attempts else "",
                    difficulty=flight["difficulty"],
                    score=voice.score,
                    cache=voice.cache,
                    comment=voice.comment,
                )
            )

        await self._database.run(keep)
        self._heard += 1

    async def quality(self, team: str | None = None) -> list[dict[str, Any]]:
        """Mean score and number of voices per backend, of one team or all."""
        mean, count = func.avg(feedback.c.score), func.count(feedback.c.score)
        query = select(feedback.c.backend, mean, count).where(feedback.c.score.is_not(None))
        if team is not None:
            query = query.where(feedback.c.team == team)
        rows = await self._database.run(
            lambda connection: connection.execute(query.group_by(feedback.c.backend).order_by(feedback.c.backend)).all()
        )
        return [{"backend": backend, "score": float(score), "voices": voices} for backend, score, voices in rows]

    def stats(self) -> dict[str, int | float | str]:
        return {"heard": self._heard}
