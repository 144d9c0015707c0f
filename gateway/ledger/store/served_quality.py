"""Reads the judged quality of the answers that clients got, per team and traffic class. The judgements are comparisons
and ratings."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, Table, and_, func, select

from gateway.ledger.store.entries import newest
from gateway.ledger.store.evidence import RATING_WEIGHT, RATINGS_PER_KEY, baseline
from gateway.state.sql.tables import evidence, feedback, ledger

SERVED = ("ok", "interrupted")


class Verdict(NamedTuple):
    """One judged answer. `bad`: 0 for an answer as good as the reference's, up to 1 for the worst answer."""

    at: float
    weight: float
    bad: float


@dataclass(frozen=True, slots=True)
class Requests:
    """The numbers of requests of one traffic class."""

    served: int = 0
    escalated: int = 0
    """Requests whose first answer was not served, because it was weak (refusal, broken schema, low confidence …)."""


NO_REQUESTS = Requests()


def verdicts(connection: Connection, team: str, since: float) -> dict[str, list[Verdict]]:
    """The team's judged answers since `since` (Unix seconds), as traffic class → judged answers in any order.

    Comparisons are included only if a client got the compared answer. Answers from background calls are excluded, and
    also answers that a stronger backend's answer replaced. Ratings are compared with the usual rating of the
    reference's answers.
    """
    found: dict[str, list[Verdict]] = defaultdict(list)
    for traffic_class, verdict in (*_compared(connection, team, since), *_rated(connection, team, since)):
        found[traffic_class].append(verdict)
    return found


def requests(connection: Connection, team: str, since: float) -> dict[str, Requests]:
    """The numbers of requests since `since` (Unix seconds) that a backend answered, by traffic class."""
    c = ledger.c
    which = [newest, c.team == team, c.at >= since, c.kind == "", c.attempt > 0, c.outcome.in_((*SERVED, "escalated"))]
    query = select(c.traffic_class, c.outcome, func.count()).where(*which).group_by(c.traffic_class, c.outcome)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for traffic_class, outcome, count in connection.execute(query):
        counts[traffic_class]["escalated" if outcome == "escalated" else "served"] += count
    return {name: Requests(each["served"], each["escalated"]) for name, each in counts.items()}


def _compared(connection: Connection, team: str, since: float) -> Iterator[tuple[str, Verdict]]:
    c = evidence.c
    query = (
        select(ledger.c.traffic_class, c.at, c.weight, c.score)
        .join(ledger, and_(_answer_of(evidence), ledger.c.backend == c.backend))
        .where(c.team == team, c.at >= since, c.weight > 0, newest)
    )
    for traffic_class, at, weight, score in connection.execute(query):
        yield traffic_class, Verdict(at, weight, 1 - score)


def _rated(connection: Connection, team: str, since: float) -> Iterator[tuple[str, Verdict]]:
    c = feedback.c
    query = (
        select(ledger.c.traffic_class, c.at, c.key_id, c.score)
        .join(ledger, _answer_of(feedback))
        .where(c.team == team, c.at >= since, c.score.is_not(None), newest)
        .order_by(c.id.desc())
    )
    counted, usual = Counter[tuple[str, str]](), baseline(connection, team, since)
    for traffic_class, at, key, score in connection.execute(query):
        counted[traffic_class, key] += 1
        if counted[traffic_class, key] <= RATINGS_PER_KEY:
            yield traffic_class, Verdict(at, RATING_WEIGHT, max(0.0, usual - score))


def _answer_of(table: Table) -> ColumnElement[bool]:
    """An SQL condition for joins with the ledger. It connects a row of `table` with the ledger row of the same request
    whose answer the client got."""
    c = ledger.c
    same = and_(c.request_id == table.c.request_id, c.team == table.c.team)
    return and_(same, c.kind == "", c.attempt > 0, c.outcome.in_(SERVED))
