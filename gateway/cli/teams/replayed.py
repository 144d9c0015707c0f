"""Sums the results of a policy replay: dollars, requests that move to another backend, and budgets that would have been
spent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, select

from gateway.cli.teams.redecide import Redecider, Request, Verdict, grouped
from gateway.domain.money.budget import Budget
from gateway.domain.money.windows import iso, window_bounds
from gateway.domain.policy import Policy
from gateway.domain.units import usd_text, usd_to_pico
from gateway.ledger.rows import Row
from gateway.ledger.store.entries import CHECK, IDLE, newest, within
from gateway.state.sql.tables import ledger, ledger_sums

METHOD = (
    "Each request is decided again by the router, from its recorded tokens, class and difficulty; its prompt is not "
    "stored. Health, load, learned evidence, pacing and prompts in backends' caches are not known.",
    "A request that stays at its backend keeps its recorded cost. A moved one costs its recorded tokens at today's "
    "price; the range is from a prompt cache as warm as recorded to a cold one, over all grades that fit.",
    "Answers are taken to be as long, and repeats as frequent, as recorded. Hits of a newly enabled cache, "
    "rate limits, trimming and organisations' budgets are not replayed; comparisons cost what they cost.",
    "Dollars do not count refusals by budgets; those are listed, at the higher end of the range.",
)


@dataclass(slots=True)
class Meter:
    """Simulates the spend in the windows of one budget. Finds the requests that come after the budget is spent."""

    budget: Budget
    spent: dict[tuple[str, float], int] = field(default_factory=dict)
    """(Owner, start of the window) → pico-dollars or tokens."""
    first_at: float | None = None
    requests: int = 0
    """Requests that began after the budget of their owner was spent."""
    pico: int = 0

    def see(self, row: Row, pico: int) -> None:
        budget = self.budget
        owner = {"key": row.key_id, "end_user": row.end_user, "session": row.session}.get(budget.per, row.team)
        if not owner:
            return
        window = owner, window_bounds(budget.window, budget.timezone, row.at)[0]
        before = self.spent.get(window, 0)
        if before >= self._limit:
            self.first_at = row.at if self.first_at is None else self.first_at
            self.requests += 1
            self.pico += pico
        self.spent[window] = before + (pico if budget.limit_usd is not None else row.usage.total * (pico > 0))

    @property
    def _limit(self) -> int:
        return (
            usd_to_pico(self.budget.limit_usd) if self.budget.limit_usd is not None else self.budget.limit_tokens or 0
        )

    def as_object(self) -> dict[str, Any]:
        return {
            "budget": self.budget.title,
            "hard": self.budget.hard,
            "spent_at": None if self.first_at is None else iso(self.first_at),
            "requests_after": self.requests,
            "usd_after": usd_text(self.pico),
        }


@dataclass(slots=True)
class Replay:
    """The sums of a policy replay for one team."""

    team: str
    now: list[Meter]
    then: list[Meter]
    requests: int = 0
    decided: int = 0
    moved: int = 0
    now_pico: int = 0
    low_pico: int = 0
    high_pico: int = 0
    kept_pico: int = 0
    """Recorded cost of the requests that were not decided again. Each of the three sums above contains this cost."""
    routes: Counter[tuple[str, str]] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    rolled_up: int = 0

    def see(self, request: Request, verdict: Verdict) -> None:
        served, cost = request.served, request.cost_pico or 0
        low = cost if verdict.low is None else verdict.low
        high = cost if verdict.high is None else verdict.high
        self.requests += 1
        self.now_pico, self.low_pico, self.high_pico = self.now_pico + cost, self.low_pico + low, self.high_pico + high
        if verdict.unknown:
            self.unknown[verdict.unknown] += 1
            self.kept_pico += cost
        elif verdict.refused:
            self.refused[verdict.refused] += 1
        else:
            self._decided(request, verdict)
        for meter in self.now:
            meter.see(served, cost)
        for meter in self.then:
            meter.see(served, high)

    def _decided(self, request: Request, verdict: Verdict) -> None:
        self.decided += 1
        before, after = request.rows[0].backend or "cache", " or ".join(verdict.backends)
        if before != after:
            self.moved += 1
            self.routes[before, after] += 1

    @property
    def increase(self) -> float | None:
        """By how many percent the new policy may increase the cost. Computed from the highest possible cost. None if
        nothing was spent before and something would be spent now."""
        if not self.now_pico:
            return None if self.high_pico else 0.0
        return 100 * (self.high_pico - self.now_pico) / self.now_pico


def replayed(
    connection: Connection,
    redecider: Redecider,
    policies: Mapping[str, tuple[Policy, Policy]],
    since: float,
    until: float,
) -> list[Replay]:
    """Replay each team with requests in `[since, until)` (Unix seconds). `policies`: team → (present policy, new
    policy)."""
    found = []
    for team, (old, new) in sorted(policies.items()):
        replay = Replay(team, [Meter(budget) for budget in old.budget], [Meter(budget) for budget in new.budget])
        for request in grouped(_rows(connection, team, since, until)):
            replay.see(request, redecider.decide(request, old, new))
        sums = select(ledger_sums.c.requests).where(*within(since, until, team, ledger_sums))
        replay.rolled_up = sum(connection.execute(sums).scalars())
        if replay.requests or replay.rolled_up:
            found.append(replay)
    return found


def teams(connection: Connection, since: float, until: float) -> list[str]:
    """The teams with rows in `[since, until)` (Unix seconds)."""
    return list(
        connection.execute(select(ledger.c.team).where(*within(since, until, None, ledger)).distinct()).scalars()
    )


def _rows(connection: Connection, team: str, since: float, until: float) -> Iterator[Row]:
    c = ledger.c
    which = [newest, c.kind.not_in((CHECK, IDLE)), c.simulated.is_(False), *within(since, until, team, ledger)]
    columns = [c[name] for name in Row._fields]
    query = select(*columns).where(*which).order_by(c.at, c.request_id, c.attempt)
    for values in connection.execute(query.execution_options(yield_per=1000)):
        yield Row(*values)


def as_object(found: Iterable[Replay]) -> dict[str, Any]:
    """The sums as JSON values. Money is exact decimal text in USD."""
    found = list(found)
    return {
        "teams": [_object(one) for one in found],
        "total": _sums(*(sum(getattr(one, name) for one in found) for name in ("now_pico", "low_pico", "high_pico"))),
        "increase_percent": increase(found),
        "method": METHOD,
    }


def increase(found: Iterable[Replay]) -> float | None:
    """By how many percent the new policies may increase the cost of all teams together. Computed from the highest
    possible cost. None if nothing was spent before and something would be spent now."""
    found = list(found)
    whole = Replay(
        "", [], [], now_pico=sum(one.now_pico for one in found), high_pico=sum(one.high_pico for one in found)
    )
    return whole.increase


def _object(one: Replay) -> dict[str, Any]:
    return {
        "team": one.team,
        "requests": one.requests,
        "decided_again": one.decided,
        **_sums(one.now_pico, one.low_pico, one.high_pico),
        "not_decided_usd": usd_text(one.kept_pico),
        "moved": one.moved,
        "routes": [{"from": old, "to": new, "requests": count} for (old, new), count in one.routes.most_common()],
        "refused": dict(one.refused),
        "unknown": dict(one.unknown),
        "rolled_up": one.rolled_up,
        "budgets_now": [meter.as_object() for meter in one.now],
        "budgets_then": [meter.as_object() for meter in one.then],
    }


def _sums(now: int, low: int, high: int) -> dict[str, str]:
    return {"now_usd": usd_text(now), "low_usd": usd_text(low), "high_usd": usd_text(high)}
