"""Stores people's ratings of answers, each with the routing decision for the rated request. A key has one rating per
request.

A single rating changes the figures little: only the newest ratings of each key count, and means are taken over keys
(see `gateway/ledger/store/evidence.py`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from gateway.domain.protocols import Clock, Evidence, NoEvidence
from gateway.domain.tenant import Tenant
from gateway.errors import BadRequest, LimitExceeded
from gateway.ledger.store.evidence import MOST, by_key, robust_mean
from gateway.state.sql.database import Database
from gateway.state.sql.tables import feedback

RATINGS = {"good": 1.0, "bad": 0.0}
PER_MINUTE = 60
"""Maximum number of ratings per minute that are accepted from one key."""


@dataclass(frozen=True, slots=True)
class Rating:
    """One rating. `score`: 0..1; None if the rating is only about the cache hit, and not about the answer."""

    score: float | None
    cache: str
    comment: str

    @property
    def wrong(self) -> bool | None:
        """Whether the answer is reported as wrong: by the rating `bad` or by `cache: wrong`. None if the rating says
        nothing about this."""
        if self.cache == "wrong" or self.score == RATINGS["bad"]:
            return True
        return False if self.cache == "right" or self.score == RATINGS["good"] else None


def parse(body: Mapping[str, Any]) -> Rating:
    """Parse a rating. Its fields: `"rating": "good"|"bad"` or `"score": 0..1`; `"cache": "wrong"`; `"comment"`.
    Raises BadRequest.
    """
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
        raise BadRequest("Give rating, score or cache.")
    return Rating(None if score is None else float(score), cache, str(body.get("comment", ""))[:1000])


class Feedback:
    """Stores ratings in SQL and reports their figures per backend."""

    def __init__(self, database: Database, learned: Evidence | None = None, *, clock: Clock = time) -> None:
        """`learned`: the evidence by which the probabilities in flight records were corrected (see `adequacy` in
        gateway/domain/routing/learned.py)."""
        self._database, self._learned, self._clock = database, learned or NoEvidence(), clock
        self._stored = self._refused = 0
        self._replaced: dict[str, list[float]] = {}
        """Key → the times of its ratings of the last minute that a later rating replaced, so that SQL lacks them."""

    async def rate(self, tenant: Tenant, flight: Mapping[str, Any], rating: Rating) -> None:
        """Store a rating of the request with the flight record `flight`. It replaces an earlier rating of this request
        by the same key.

        Raises LimitExceeded.
        """
        backend, now = _served_by(flight), self._clock.time()
        predicted, target = self._promise(tenant.team, flight, backend)
        replaced = self._replaced.setdefault(tenant.key.lineage, [])  # one list, also for ratings at the same time
        replaced[:] = [at for at in replaced if at > now - 60]

        def keep(connection: Connection) -> bool:
            c = feedback.c
            lately = select(func.count()).where(c.key_id == tenant.key.lineage, c.at > now - 60)
            if (connection.scalar(lately) or 0) + len(replaced) >= PER_MINUTE:
                return False
            earlier = (c.request_id == flight["id"], c.key_id == tenant.key.lineage)
            replaced.extend(connection.scalars(select(c.at).where(*earlier, c.at > now - 60)))
            connection.execute(delete(feedback).where(*earlier))
            connection.execute(
                insert(feedback).values(
                    at=now,
                    request_id=flight["id"],
                    team=tenant.team,
                    key_id=tenant.key.lineage,
                    backend=backend,
                    difficulty=flight["difficulty"],
                    score=rating.score,
                    cache=rating.cache,
                    comment=rating.comment,
                    predicted=predicted,
                    target=target,
                )
            )
            return True

        if not await self._database.run(keep):
            self._refused += 1
            raise LimitExceeded(
                f"This key has rated {PER_MINUTE} requests within a minute; wait, or rate fewer.",
                retry_after_s=60.0,
            )
        self._stored += 1

    def _promise(self, team: str, flight: Mapping[str, Any], backend: str) -> tuple[float | None, float | None]:
        """Two figures about the backend that answered the request: the predicted probability that its answer is as good
        as the reference's, before any correction by evidence, and the quality that routing promised. If the reference
        itself answered, returns (None, 1.0). If no routing decision is known, returns (None, None)."""
        route = flight.get("route") or {}
        if not backend or not route:
            return None, None
        if backend == route.get("reference"):
            return None, 1.0
        adequacy = next((one["adequacy"] for one in route.get("considered", ()) if one["backend"] == backend), None)
        quality = route.get("quality")
        if adequacy is None or quality is None:
            return None, None
        return self._learned.adjust(team, backend).prior(adequacy), min(adequacy, quality)

    async def quality(self, team: str | None = None) -> list[dict[str, Any]]:
        """The mean score of each backend's newest ratings (see `robust_mean`), and the number of these ratings. `team`:
        only ratings of this team; None: of all teams."""
        c = feedback.c
        query = select(c.backend, c.key_id, c.score).where(c.score.is_not(None)).order_by(c.id.desc()).limit(25 * MOST)
        if team is not None:
            query = query.where(c.team == team)
        rows = await self._database.run(lambda connection: connection.execute(query).all(), writes=False)
        ratings: dict[str, list[tuple[str, float]]] = {}
        for backend, key, score in rows:
            ratings.setdefault(backend, []).append((key, score))
        return [
            {"backend": backend, "score": robust_mean(by_key(scores)), "voices": len(scores)}
            for backend, scores in sorted(ratings.items())
        ]

    def stats(self) -> dict[str, int | float | str]:
        return {"heard": self._stored, "refused": self._refused}


def _served_by(flight: Mapping[str, Any]) -> str:
    """The backend whose answer the client received; empty for an answer from the cache."""
    attempts: list[Mapping[str, Any]] = [one for one in flight["attempts"] if one.get("kind", "") != "shadow"]
    served = [one for one in attempts if one.get("outcome") in ("ok", "open")] or attempts
    return str(served[-1]["backend"]) if served else ""
