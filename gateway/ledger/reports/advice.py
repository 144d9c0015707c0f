"""Finds from the ledger why a team's input costs more than necessary. It finds prompts that begin alike, and the
reasons why providers did not read these beginnings from their caches. The ledger has no prompts, so only sizes,
times and prices are used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from sqlalchemy import Connection, select

from gateway.domain.money.price import Price
from gateway.domain.money.usage import Usage
from gateway.domain.prompt_cache import rules_of
from gateway.ledger.prices.applied import price_of
from gateway.ledger.reports.cache_misses import REMEDIES, misses
from gateway.ledger.rows import Row
from gateway.ledger.store.entries import newest, within
from gateway.state.sql.tables import ledger

DAY_S = 86400.0
MONTH_S = 30 * DAY_S
_SHORTER = 0.8
"""A prompt with less than this share of the previous prompt's tokens belongs to a shortened history."""
_LEAST_TOKENS = 1024
"""Minimum tokens of a recurring beginning."""
MOST_ROWS = 100_000
"""Maximum number of calls that are read, the newest first."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A part of a team's cost that may be avoidable."""

    team: str
    kind: str
    subject: str
    requests: int
    month_pico: float
    """Pico-dollars that this part costs in a month."""
    text: str


@dataclass(slots=True)
class Overview:
    """The sums of one team's calls in the measured time. Money is in pico-dollars."""

    team: str
    begin: float = 0.0
    """Unix time of the first call."""
    end: float = 0.0
    requests: int = 0
    cost: int = 0
    input_cost: int = 0
    input_tokens: int = 0
    repeated_cost: int = 0
    """Cost of the tokens that repeat the previous prompt of the session."""
    repeated_tokens: int = 0
    read_tokens: int = 0
    """Tokens that providers read from their caches."""
    nameless_cost: int = 0
    """Cost of the input of calls without a session name."""
    unpriced: int = 0

    @property
    def per_month(self) -> float:
        """The factor that converts sums of the measured time to a month. A measured time of less than a day counts as a
        day."""
        return MONTH_S / max(DAY_S, self.end - self.begin)

    @property
    def token_pico(self) -> float:
        """The mean cost of an input token, in pico-dollars."""
        return self.input_cost / self.input_tokens if self.input_tokens else 0.0


@dataclass(slots=True)
class _Beginnings:
    """The first requests of sessions that may begin alike, because they have the same agent, key and model."""

    read: list[int]
    """Cached tokens of each first request that read any."""
    missed: list[Row]
    sessions: int = 0
    last_at: float = 0.0


def advise(connection: Connection, since: float, team: str | None = None) -> tuple[list[Overview], list[Finding]]:
    """Report for each team the cost of its calls since `since` (Unix seconds), and the parts of this cost that may be
    avoidable."""
    c = ledger.c
    which = [newest, c.attempt > 0, c.kind == "", c.simulated.is_(False), c.outcome.in_(("ok", "interrupted"))]
    columns = [c[name] for name in Row._fields]
    query = select(*columns).where(*which, *within(since, None, team, ledger))
    by_team: dict[str, list[Row]] = defaultdict(list)
    for values in reversed(connection.execute(query.order_by(c.at.desc(), c.id.desc()).limit(MOST_ROWS)).all()):
        row = Row(*values)
        by_team[row.team].append(row)
    views, found = [], []
    for name, rows in by_team.items():
        view = overview(name, rows)
        views.append(view)
        found += [*missed(view, rows), *beginnings(view, rows)]
    return views, found


def overview(team: str, rows: Sequence[Row]) -> Overview:
    """Sum the calls of one team. The calls must be in order of time, oldest first."""
    view, last = Overview(team, rows[0].at, rows[-1].at), dict[tuple[str, str], int]()
    for row in rows:
        usage, price = row.usage, _price(row)
        view.requests += 1
        view.cost += row.cost_pico or 0
        if price is None:
            view.unpriced += 1
            continue
        paid = price.cost(_input(usage))
        view.input_cost += paid
        view.input_tokens += usage.all_input
        view.read_tokens += usage.cached_tokens
        if not row.session:
            view.nameless_cost += paid
            continue
        before, session = last.get((row.key_id, row.session), 0), (row.key_id, row.session)
        last[session] = usage.all_input
        if usage.all_input >= _SHORTER * before:
            repeated = min(before, usage.all_input)
            read = min(repeated, usage.cached_tokens)
            view.repeated_tokens += repeated
            view.repeated_cost += price.cost(Usage(0, read)) + (repeated - read) * _dearest(row, price)
    return view


def missed(view: Overview, rows: Sequence[Row]) -> Iterable[Finding]:
    """One finding for each cause of misses in providers' caches."""
    by_cause: dict[str, list[int]] = defaultdict(list)
    for miss in misses(row for row in rows if row.session):
        by_cause[miss.cause].append(miss.lost_pico or 0)
    for cause, remedy in REMEDIES.items():
        if costs := by_cause.get(cause):
            yield Finding(view.team, "cache miss", cause, len(costs), sum(costs) * view.per_month, remedy)


def beginnings(view: Overview, rows: Sequence[Row]) -> Iterable[Finding]:
    """One finding for each recurring beginning of prompts. A beginning recurs if a session's first request did not read
    it from the provider's cache, although another session had sent it shortly before."""
    for (key, agent, model), group in _first_requests(rows).items():
        if len(group.read) < 2 or not group.missed:
            continue
        tokens = int(median(group.read))
        lost = sum(min(tokens, row.usage.all_input) * _above_reading(row) for row in group.missed)
        if tokens < _LEAST_TOKENS or not lost:
            continue
        text = (
            f"{len(group.read)} of {group.sessions} sessions of key {key} read about {tokens} tokens of a common "
            f"beginning from the cache, but {len(group.missed)} read nothing, although another session had just been "
            "served. Keep tools and system prompt equal, and let the gateway mark them (context.prompt_cache: auto)."
        )
        subject = f"{agent or 'sessions'}, {model}"
        yield Finding(view.team, "recurring beginning", subject, len(group.missed), lost * view.per_month, text)


def _first_requests(rows: Sequence[Row]) -> Mapping[tuple[str, str, str], _Beginnings]:
    seen: set[tuple[str, str]] = set()
    groups: dict[tuple[str, str, str], _Beginnings] = {}
    for row in rows:
        if not row.session or row.estimated:
            continue
        group = groups.setdefault((row.key_id, row.agent, row.model), _Beginnings([], []))
        if (row.key_id, row.session) not in seen:
            seen.add((row.key_id, row.session))
            group.sessions += 1
            if row.cached_tokens:
                group.read.append(row.cached_tokens)
            elif group.last_at and row.at - group.last_at <= rules_of(row.model).ttl_s:
                group.missed.append(row)
        group.last_at = row.at
    return groups


def _price(row: Row) -> Price | None:
    try:
        return price_of(row.prices)
    except (ValueError, TypeError):
        return None


def _input(usage: Usage) -> Usage:
    return replace(usage, output_tokens=0, reasoning_tokens=0, audio_tokens=0, image_tokens=0)


def _dearest(row: Row, price: Price) -> int:
    """The price, in pico-dollars, of the most expensive token class in the call's input. Tokens that were read from the
    cache are not considered."""
    if row.cache_write_1h_tokens and price.cache_write_1h is not None:
        return price.cache_write_1h
    if row.cache_write_5m_tokens and price.cache_write_5m is not None:
        return price.cache_write_5m
    return price.input


def _above_reading(row: Row) -> int:
    price = _price(row)
    return 0 if price is None or price.cached_input is None else max(0, _dearest(row, price) - price.cached_input)
