"""Compares the variants of a team's experiments by cost, length and quality of the answers, with intervals. The
intervals come from a bootstrap that draws whole sessions, because the requests of one session are alike."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import orjson
from sqlalchemy import Connection, select

from gateway.domain.policy import EXPERIMENT_TAG as TAG
from gateway.ledger.store.entries import CHECK, IDLE, newest, within
from gateway.state.sql.tables import feedback, ledger

LEAST_SESSIONS = 30
"""Minimum number of sessions of each variant for a conclusion."""
_DRAWS, _SEED, _OUTSIDE = 1000, 17, 0.025
_MOST_ROWS = 200_000
_ANSWERED = ("ok", "interrupted")


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Variant:
    """The figures of the sessions with one variant. A figure that cannot be computed is None."""

    experiment: str
    name: str
    sessions: int
    answers: int
    usd_per_answer: Interval | None
    output_tokens: Interval | None
    """Output tokens per answer."""
    rating: Interval | None
    """Mean rating by users, from 0 (bad) to 1 (good)."""
    rated: int


@dataclass(slots=True)
class _Session:
    pico: int = 0
    output: int = 0
    answers: set[str] = field(default_factory=set)
    ratings: list[float] = field(default_factory=list)


def compare(connection: Connection, team: str, since: float, until: float | None = None) -> list[Variant]:
    """The variants of all experiments with requests of `team` since `since` (Unix seconds), sorted by name."""
    sessions = _read(connection, team, since, until)
    _rate(connection, team, since, sessions)
    return [_variant(*names, list(found.values())) for names, found in sorted(sessions.items())]


_Sessions = dict[tuple[str, str], dict[tuple[str, str], _Session]]


def _read(connection: Connection, team: str, since: float, until: float | None) -> _Sessions:
    """Read the sessions of the experiments: (experiment, variant) → (key, session name) → the session."""
    c = ledger.c
    columns = (
        c.tags,
        c.key_id,
        c.session,
        c.request_id,
        c.outcome,
        c.kind,
        c.cost_pico,
        c.output_tokens,
        c.reasoning_tokens,
    )
    which = [
        newest,
        c.kind.not_in((CHECK, IDLE)),
        c.simulated.is_(False),
        c.tags.contains(TAG),
        *within(since, until, team, ledger),
    ]
    found: _Sessions = defaultdict(lambda: defaultdict(_Session))
    for tags, key, name, request_id, outcome, kind, pico, output, reasoning in connection.execute(
        select(*columns).where(*which).order_by(c.at, c.id).limit(_MOST_ROWS)
    ):
        for tag, variant in orjson.loads(tags).items():
            if not tag.startswith(TAG):
                continue
            session = found[tag.removeprefix(TAG), variant][key, name]
            session.pico += pico or 0
            if kind == "" and outcome in _ANSWERED:
                session.answers.add(request_id)
                session.output += output + reasoning
    return found


def _rate(connection: Connection, team: str, since: float, sessions: _Sessions) -> None:
    of = defaultdict[str, list[_Session]](list)
    for found in sessions.values():
        for session in found.values():
            for request_id in session.answers:
                of[request_id].append(session)
    c = feedback.c
    query = select(c.request_id, c.score).where(c.team == team, c.at >= since, c.score.is_not(None))
    for request_id, score in connection.execute(query):
        for session in of.get(request_id, ()):
            session.ratings.append(score)


def _variant(experiment: str, name: str, sessions: list[_Session]) -> Variant:
    counts = [len(session.answers) for session in sessions]
    rated = [len(session.ratings) for session in sessions]
    return Variant(
        experiment,
        name,
        len(sessions),
        sum(counts),
        _ratio([session.pico / 1e12 for session in sessions], counts),
        _ratio([float(session.output) for session in sessions], counts),
        _ratio([sum(session.ratings) for session in sessions], rated),
        sum(rated),
    )


def _ratio(sums: list[float], counts: list[int]) -> Interval | None:
    """The sum of `sums`, divided by the sum of `counts`, with its interval. Each list has one number for each
    session."""
    import numpy as np

    if not sum(counts):
        return None
    pairs = np.array([sums, counts], dtype=float)
    size = pairs.shape[1]
    weights = np.random.default_rng(_SEED).multinomial(size, [1 / size] * size, size=_DRAWS).astype(float)
    over, under = weights @ pairs[0], weights @ pairs[1]
    low, high = np.quantile(over[under > 0] / under[under > 0], (_OUTSIDE, 1 - _OUTSIDE))
    return Interval(float(sum(sums) / sum(counts)), float(low), float(high))


def as_object(variant: Variant) -> dict[str, Any]:
    """The variant as JSON values."""
    figures = {
        name: None
        if (found := getattr(variant, name)) is None
        else {part: round(getattr(found, part), 9) for part in ("value", "low", "high")}
        for name in ("usd_per_answer", "output_tokens", "rating")
    }
    plain = {name: getattr(variant, name) for name in ("experiment", "name", "sessions", "answers", "rated")}
    return {**plain, **figures, "enough": variant.sessions >= LEAST_SESSIONS}
