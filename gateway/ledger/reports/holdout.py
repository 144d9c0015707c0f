"""Measures how much money a team saved by leaving out old tool outputs, and whether its sessions still succeed.

In some sessions, drawn at random, nothing is left out: these sessions are held out. They are compared with the other
sessions of the team. For each session, the paid cost is divided by a computed cost: the cost of the same requests
without any cuts, if the provider's cache had kept each session's last prompt for its usual time. This imagined session
is called the twin. The twin's cost is computed from sizes and times, in the same way for all sessions. Therefore its
errors cancel in the comparison. The division also makes long sessions add less noise than their plain costs would.

The intervals come from a bootstrap that draws whole sessions, because the requests of a session are alike. With few
held-out sessions, a bootstrap reports too many losses. Therefore a permutation test decides whether a figure is worse
with cuts. The test assigns the sessions to the two groups at random. A figure is worse if a random assignment hardly
ever gives a difference as bad as the measured one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, RowMapping, func, or_, select

from gateway.domain.holdout import is_held_out
from gateway.domain.money.price import Price
from gateway.domain.money.usage import Usage
from gateway.domain.policy import ContextPolicy
from gateway.domain.prompt_cache import rules_of
from gateway.domain.record import FOR_SESSIONS
from gateway.ledger.prices.applied import price_of
from gateway.ledger.rows import TOKENS
from gateway.ledger.store.entries import newest, within
from gateway.ledger.store.sums import pico_sum, whole
from gateway.state.sql.tables import feedback, ledger

if TYPE_CHECKING:
    import numpy as np

WINDOW_S = 30 * 86400.0
"""Length of the measured time in seconds."""
LEAST_REQUESTS = 11
"""Minimum requests of a measured session. In the first ten requests nothing is left out, so both kinds of sessions have
the same chance to reach this number."""
LEAST_SESSIONS = 30
"""Minimum number of sessions of each kind for a decision."""
_SHORTER = 0.8
"""A prompt with less than this share of the previous prompt's tokens belongs to a new history."""
_BAD = 0.5
"""A rating below this score counts as bad."""
_DRAWS, _AT_ONCE, _EXCHANGES, _SEED = 1000, 50, 4000, 17
_OUTSIDE = 0.025
"""Share of the bootstrap's results that is outside the interval on each side."""
_SURE = 0.001
"""A figure counts as worse if at most this share of the random assignments gives as bad a result. The share is small,
because several figures are checked again and again."""
_MOST_ROWS = 200_000
_TEXTS = ("prices", "backend", "model", "key_id", "session", "request_id", "outcome", "kind")
_COLUMNS = (*_TEXTS, "at", "trimmed_tokens", "cost_pico", "escalated", "estimated", *TOKENS)


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the comparison: its value in the held-out sessions (`held`) and in the others (`cut`). `change`:
    for `cost`, the saving; for the other figures, the increase; None if it cannot be computed."""

    name: str
    held: float
    cut: float
    change: float | None
    low: float | None
    high: float | None
    """`low`, `high`: limits of the 95 % interval of `change`."""
    loses: bool
    """Whether the figure is significantly worse in the sessions that are not held out."""


@dataclass(frozen=True, slots=True)
class Holdout:
    """The comparison of one team's sessions since `since` (Unix seconds)."""

    team: str
    since: float
    held_sessions: int
    cut_sessions: int
    figures: tuple[Figure, ...] = ()
    paid_pico: int = 0
    """Cost of the sessions that are not held out, in pico-dollars."""

    @property
    def saved_usd(self) -> tuple[float, float, float] | None:
        """The US dollars that were saved in the sessions that are not held out, and the limits of the 95 % interval.
        None if they cannot be computed."""
        cost = next((figure for figure in self.figures if figure.name == "cost"), None)
        if cost is None or cost.change is None or cost.low is None or cost.high is None or cost.high >= 1:
            return None
        paid = self.paid_pico / 1e12
        low, value, high = (paid * share / (1 - share) for share in (cost.low, cost.change, cost.high))
        return value, low, high

    @property
    def loses(self) -> tuple[str, ...]:
        """The names of the figures that are significantly worse in the sessions that are not held out. Empty if there
        are too few sessions."""
        enough = min(self.held_sessions, self.cut_sessions) >= LEAST_SESSIONS
        return tuple(figure.name for figure in self.figures if figure.loses) if enough else ()


@dataclass(slots=True)
class _Session:
    requests: int = 0
    failed: int = 0
    escalated: int = 0
    bad: int = 0
    paid: int = 0
    twin: int = 0
    backend: str = ""
    size: int = 0
    """Input tokens of the last request, before anything was left out."""
    at: float = 0.0
    ids: set[str] | None = None


def has_cuts(connection: Connection, team: str, since: float) -> bool:
    """Return whether, since `since` (Unix seconds), tokens were left out of a request of `team`, or the gateway made a
    call of its own for one of the team's sessions."""
    c = ledger.c
    which = [or_(c.trimmed_tokens > 0, c.kind.in_(FOR_SESSIONS)), c.session != "", *within(since, None, team, ledger)]
    return connection.execute(select(c.id).where(*which).limit(1)).first() is not None


def calls(connection: Connection, team: str, since: float, kind: str) -> tuple[int, int]:
    """Count the calls of one `kind`, such as keep-alive calls, that were made for `team` since `since` (Unix seconds).
    Returns (number of calls, their cost in pico-dollars)."""
    c = ledger.c
    which = [newest, c.kind == kind, *within(since, None, team, ledger)]
    row = connection.execute(select(func.count(), *pico_sum(c.cost_pico)).where(*which)).one()
    return int(row[0]), whole(row[1], row[2])


def least_requests(policy: ContextPolicy) -> int:
    """The minimum number of requests that a session must have to be measured. It is 1 if the policy may shorten even
    the first request, or may keep the prompt in the cache after it. Otherwise it is `LEAST_REQUESTS`."""
    return 1 if policy.shortens or policy.keep_alive else LEAST_REQUESTS


def compare(connection: Connection, team: str, share: float, since: float, least: int = LEAST_REQUESTS) -> Holdout:
    """Compare the sessions of `team` that began at `since` or later. `share`: the policy's `context.holdout`. `least`:
    minimum number of requests of a measured session."""
    c = ledger.c
    which = [newest, c.attempt > 0, c.kind.in_(("", *FOR_SESSIONS)), c.session != "", c.simulated.is_(False)]
    query = select(*[c[name] for name in _COLUMNS]).where(*which, *within(since, None, team, ledger))
    rows = connection.execute(query.order_by(c.at, c.id).limit(_MOST_ROWS)).mappings()
    sessions = _read(rows)
    _rate(connection, team, since, sessions)
    arms: dict[bool, list[_Session]] = {True: [], False: []}
    for (_, name), session in sessions.items():
        if session.requests >= least:
            arms[is_held_out(team, name, share)].append(session)
    held, cut = arms[True], arms[False]
    figures = _figures(held, cut) if held and cut else ()
    return Holdout(team, since, len(held), len(cut), figures, sum(session.paid for session in cut))


def _read(rows: Iterable[RowMapping]) -> dict[tuple[str, str], _Session]:
    sessions: dict[tuple[str, str], _Session] = {}
    for row in rows:
        session = sessions.setdefault((row["key_id"], row["session"]), _Session(ids=set()))
        assert session.ids is not None
        if row["kind"] in FOR_SESSIONS:
            session.paid += row["cost_pico"] or 0
            continue
        if row["request_id"] not in session.ids:
            session.ids.add(row["request_id"])
            session.requests += 1
        if row["outcome"] == "failed":
            session.failed += 1
            continue
        session.escalated += bool(row["escalated"])
        if row["cost_pico"] is not None and not row["estimated"] and (price := _price(row["prices"])) is not None:
            session.paid += row["cost_pico"]
            session.twin += _twin(row, session, price)
    return sessions


def _twin(row: RowMapping, session: _Session, price: Price) -> int:
    """The cost in pico-dollars that the request would have had without any cuts in its session."""
    usage = Usage(**{name: row[name] for name in TOKENS})
    rules, written = rules_of(row["model"]), usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
    size = usage.input_tokens + usage.cached_tokens + written + row["trimmed_tokens"]
    alive = session.backend == row["backend"] and row["at"] - session.at <= rules.ttl_s
    read = min(session.size, size) if alive and size >= _SHORTER * session.size else 0
    session.backend, session.size, session.at = row["backend"], size, row["at"]
    read = read if read >= rules.least_tokens else 0
    new = size - read
    if rules.writes_cost and size >= rules.least_tokens:
        return price.cost(
            replace(usage, input_tokens=0, cached_tokens=read, cache_write_5m_tokens=new, cache_write_1h_tokens=0)
        )
    return price.cost(replace(usage, input_tokens=new, cached_tokens=read))


@lru_cache(maxsize=256)
def _price(prices: str) -> Price | None:
    try:
        return price_of(prices)
    except (ValueError, TypeError):
        return None


def _rate(connection: Connection, team: str, since: float, sessions: Mapping[tuple[str, str], _Session]) -> None:
    """Count the bad ratings of each session, and store the numbers in the sessions."""
    c = feedback.c
    query = select(c.request_id).where(c.team == team, c.at >= since, c.score < _BAD)
    bad = set(connection.execute(query).scalars())
    for session in sessions.values():
        session.bad = len(bad & session.ids) if bad and session.ids else 0


_RATES = ("failed", "escalated", "bad")


def _figures(held: list[_Session], cut: list[_Session]) -> tuple[Figure, ...]:
    import numpy as np

    names = ("paid", "twin", "requests", *_RATES)
    arms = [np.array([[getattr(one, name) for name in names] for one in arm], dtype=float) for arm in (held, cut)]
    drawn = [_values(_drawn(arm, number)) for number, arm in enumerate(arms)]
    values = [_values(arm.mean(axis=0, keepdims=True)) for arm in arms]
    exchanged = [_values(means) for means in _exchanged(*arms)]
    found = []
    for name in values[0]:
        one, other = values[0][name], values[1][name]
        change = _change(name, one, other)[0]
        changes = _change(name, drawn[0][name], drawn[1][name])
        changes = changes[np.isfinite(changes)]
        if not np.isfinite(change) or not len(changes):
            found.append(Figure(name, float(one[0]), float(other[0]), None, None, None, loses=False))
            continue
        low, high = np.quantile(changes, (_OUTSIDE, 1 - _OUTSIDE))
        by_chance = _change(name, exchanged[0][name], exchanged[1][name])
        as_bad = by_chance <= change if name == "cost" else by_chance >= change
        loses = bool((as_bad.sum() + 1) / (_EXCHANGES + 1) <= _SURE)
        found.append(Figure(name, float(one[0]), float(other[0]), float(change), float(low), float(high), loses))
    return tuple(found)


def _drawn(arm: np.ndarray[Any, Any], number: int) -> np.ndarray[Any, Any]:
    """Means of the columns of `arm` over sessions drawn with replacement. `arm`: one group of sessions, one row per
    session. The result has one row per draw."""
    import numpy as np

    random, size = np.random.default_rng((_SEED, number)), len(arm)
    parts = [
        random.multinomial(size, [1 / size] * size, size=_AT_ONCE).astype(float) @ arm / size
        for _ in range(_DRAWS // _AT_ONCE)
    ]
    return np.concatenate(parts)


def _exchanged(
    held: np.ndarray[Any, Any], cut: np.ndarray[Any, Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Means of the columns after the sessions were assigned to the two groups at random: (held out, others). `held`,
    `cut`: the real groups, one row per session. Each result has one row per assignment."""
    import numpy as np

    random, every, size = np.random.default_rng((_SEED, 2)), np.concatenate((held, cut)), len(held)
    sums = np.array(
        [every[random.choice(len(every), size, replace=False, shuffle=False)].sum(axis=0) for _ in range(_EXCHANGES)]
    )
    return sums / size, (every.sum(axis=0) - sums) / len(cut)


def _values(means: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Compute the figures from `means`: name of a figure → its value in each row."""
    import numpy as np

    paid, twin, requests, *rates = means.T
    with np.errstate(divide="ignore", invalid="ignore"):
        found = {"cost": paid / twin, "requests": requests}
        return {**found, **{name: rate / requests for name, rate in zip(_RATES, rates, strict=True)}}


def _change(name: str, held: np.ndarray[Any, Any], cut: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import numpy as np

    if name not in ("cost", "requests"):
        return np.asarray(cut - held)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = cut / held
    return np.asarray(1 - ratio if name == "cost" else ratio - 1)


def as_object(found: Holdout) -> dict[str, Any]:
    """The comparison as JSON values."""
    saved = found.saved_usd
    return {
        "held_out_sessions": found.held_sessions,
        "other_sessions": found.cut_sessions,
        "saved_usd": None if saved is None else dict(zip(("value", "low", "high"), map(_rounded, saved), strict=True)),
        "enough": min(found.held_sessions, found.cut_sessions) >= LEAST_SESSIONS,
        "figures": {
            figure.name: {
                **{name: _rounded(getattr(figure, name)) for name in ("held", "cut", "change", "low", "high")},
                "loses": figure.loses,
            }
            for figure in found.figures
        },
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 5)
