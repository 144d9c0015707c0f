"""Stores judged answers in SQL, per team and backend: comparisons with the reference's answers, and ratings by
people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from sqlalchemy import Connection, delete, func, insert, select

from gateway.domain.routing.standing import Judged
from gateway.state.sql.tables import evidence, feedback

CLASS: Final = "class"
"""The source of comparisons for the trial of a traffic class. They do not count as evidence about the backend in
general, because the grader abstained from their requests."""
WINDOW_S = 30 * 86400.0
"""Maximum age, in seconds, of judgements that count."""
KEEP_S = 3 * WINDOW_S
"""Age, in seconds, at which comparisons are deleted from the database."""
MOST = 400
"""Maximum number of comparisons, and maximum number of ratings, that are read for one backend of a team. The newest are
read."""
RATINGS_PER_KEY = 2
"""Maximum number of ratings that count for one backend and one key. The newest count."""
RATING_WEIGHT = 0.25
"""Weight of a rating, relative to a comparison. So all ratings of one key weigh at most half as much as a comparison,
which is too little to cause an alarm."""
BASELINE, BASELINE_KEYS = 0.8, 5.0
"""`BASELINE`: assumed mean rating of the reference's answers before there are ratings. `BASELINE_KEYS`: weight of this
assumption, as a number of keys."""
_TRIMMED, _LEAST_TO_TRIM = 0.1, 5
"""`_TRIMMED`: share of keys that are left out of a mean at each end. `_LEAST_TO_TRIM`: minimum number of keys for
leaving any out."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of comparing a backend's answer with the reference's answer. Its fields are the columns of table
    `evidence`."""

    request_id: str
    team: str
    backend: str
    reference: str
    source: str
    judge: str
    predicted: float
    target: float
    score: float
    weight: float = 1.0
    plans: Mapping[str, Any] = field(default_factory=dict)
    traffic_class: str = ""


def write(connection: Connection, findings: Sequence[Finding], now: float) -> None:
    """Insert comparisons that were made at `now` (Unix seconds)."""
    names = [name for name in Finding.__slots__ if name != "plans"]
    values = [
        {**{name: getattr(one, name) for name in names}, "at": now, "plans": orjson.dumps(dict(one.plans)).decode()}
        for one in findings
    ]
    if values:
        connection.execute(insert(evidence), values)


def prune(connection: Connection, now: float) -> None:
    """Delete comparisons older than `KEEP_S` seconds. Ratings are kept, because people may have written comments."""
    connection.execute(delete(evidence).where(evidence.c.at < now - KEEP_S))


def newest(connection: Connection) -> tuple[int, int]:
    """The highest id of a comparison and the highest id of a rating; 0 if there is none."""
    return tuple(connection.scalar(select(func.max(table.c.id))) or 0 for table in (evidence, feedback))  # type: ignore[return-value]


def judged_pairs(connection: Connection, after: tuple[int, int], since: float) -> set[tuple[str, str]]:
    """The (team, backend) of each judgement that is newer than `after` and not older than `since` (Unix seconds).
    `after`: an earlier result of `newest`."""
    found: set[tuple[str, str]] = set()
    for table, id, more in (
        (evidence, after[0], [evidence.c.weight > 0, evidence.c.source != CLASS]),
        (feedback, after[1], [feedback.c.predicted.is_not(None), feedback.c.score.is_not(None)]),
    ):
        query = select(table.c.team, table.c.backend).where(table.c.id > id, table.c.at >= since, *more).distinct()
        found.update((team, backend) for team, backend in connection.execute(query))
    return found


def read(connection: Connection, team: str, backend: str, since: float) -> list[Judged]:
    """Read the judgements of one backend of a team, oldest first. Comparisons get even ids, ratings odd ids."""
    c = evidence.c
    rows = connection.execute(
        select(c.id, c.predicted, c.target, c.score, c.weight, c.at)
        .where(c.team == team, c.backend == backend, c.at >= since, c.weight > 0, c.source != CLASS)
        .order_by(c.id.desc())
        .limit(MOST)
    )
    found = [Judged(2 * row.id, row.predicted, row.target, row.score, row.weight, row.at) for row in rows]
    found += _ratings(connection, team, backend, since)
    return sorted(found, key=lambda one: (one.at, one.id))


def escalations(connection: Connection, since: float) -> dict[tuple[str, str], tuple[int, float]]:
    """Count escalations: the calls of a stronger backend after a weak answer. Returns (team, backend) → (number of
    escalations, share of them in which both answers agreed)."""
    c = evidence.c
    found = connection.execute(
        select(c.team, c.backend, func.count(), func.avg(c.score))
        .where(c.source == "escalation", c.at >= since)
        .group_by(c.team, c.backend)
    )
    return {(team, backend): (count, float(agreed)) for team, backend, count, agreed in found}


def _ratings(connection: Connection, team: str, backend: str, since: float) -> Iterable[Judged]:
    c = feedback.c
    rows = connection.execute(
        select(c.id, c.at, c.key_id, c.predicted, c.target, c.score)
        .where(c.team == team, c.backend == backend, c.at >= since, c.predicted.is_not(None), c.score.is_not(None))
        .order_by(c.id.desc())
        .limit(MOST)
    ).all()
    if not rows:
        return
    usual = baseline(connection, team, since)
    counted = Counter[str]()
    for row in rows:
        counted[row.key_id] += 1
        if counted[row.key_id] <= RATINGS_PER_KEY:
            yield Judged(2 * row.id + 1, row.predicted, row.target, row.score, RATING_WEIGHT, row.at, usual)


def baseline(connection: Connection, team: str, since: float) -> float:
    """The usual rating of the reference's answers, 0..1. Without ratings, the result is `BASELINE`."""
    usual, keys = _of_reference(connection, team, since)
    return (usual * keys + BASELINE * BASELINE_KEYS) / (keys + BASELINE_KEYS)


def _of_reference(connection: Connection, team: str, since: float) -> tuple[float, int]:
    """The mean rating of the reference's answers, and the number of keys that rated them."""
    c = feedback.c
    rows = connection.execute(
        select(c.key_id, c.score)
        .where(c.team == team, c.predicted.is_(None), c.target.is_not(None), c.score.is_not(None), c.at >= since)
        .order_by(c.id.desc())
        .limit(MOST)
    ).all()
    ratings = by_key((row.key_id, row.score) for row in rows)
    return robust_mean(ratings) if ratings else BASELINE, len(ratings)


def by_key(rated: Iterable[tuple[str, float]]) -> dict[str, list[float]]:
    """The ratings that count, by the key that gave them. `rated`: (key, score) of each rating, newest first."""
    ratings: dict[str, list[float]] = {}
    for key, score in rated:
        of_key = ratings.setdefault(key, [])
        if len(of_key) < RATINGS_PER_KEY:
            of_key.append(score)
    return ratings


def robust_mean(ratings: Mapping[str, Sequence[float]]) -> float:
    """The mean rating, computed so that a single key has little effect. It is the mean of each key's mean, weighted by
    the key's number of ratings. If there are many keys, the keys with the highest and lowest means are left out.

    `ratings`: key → its ratings. Raises ValueError if there are none.
    """
    if not ratings:
        raise ValueError("there are no ratings")
    means = sorted((sum(scores) / len(scores), len(scores)) for scores in ratings.values())
    if len(means) >= _LEAST_TO_TRIM:
        cut = max(1, int(len(means) * _TRIMMED))
        means = means[cut:-cut]
    weight = sum(count for _, count in means)
    return sum(mean * count for mean, count in means) / weight
