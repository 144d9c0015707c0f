"""The page's figures: one team's spend as JSON values, all of one moment, every amount exact decimal text."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_
from sqlalchemy.exc import SQLAlchemyError

from gateway.dashboard import queries
from gateway.domain.policy import Budget
from gateway.domain.protocols import Clock
from gateway.domain.tasks import Tasks
from gateway.domain.units import usd_to_pico
from gateway.domain.windows import iso, window_bounds
from gateway.errors import LedgerUnavailable, Overloaded
from gateway.ledger.formats import as_object, dollars
from gateway.ledger.report import Report, StandIn, read_usage
from gateway.ledger.spending import spent_in_ledger
from gateway.ledger.sums import snapshot
from gateway.ledger.thresholds import forecast_pico
from gateway.policy.load import DEFAULT, Policies
from gateway.state.sql import Database
from gateway.state.tables import ledger
from gateway.trials.feedback import Feedback

log = logging.getLogger(__name__)

MOST_DAYS = 366
DEAREST = 10
ALERTS = 8
GROUPINGS = (("day",), ("backend",), ("model",), ("key",))
REFRESH_S = 5.0
"""How often a page in sight asks again, at least so long apart."""
RESTS = 20
"""A look at a large ledger may take seconds: so many times as long its figures are shown again."""
LONGEST_REST_S = 300.0
WAIT_S = 30.0
_KEPT = 64
_DAY_S = 86400


@dataclass(frozen=True, slots=True)
class _Made:
    figures: dict[str, Any]
    good_until: float


class Figures:
    """Computes one team's figures at a time, so that the page never takes the ledger from those who write it."""

    def __init__(
        self, *, database: Database, policies: Policies, prices: StandIn, feedback: Feedback, clock: Clock = time
    ) -> None:
        self._database, self._policies, self._prices = database, policies, prices
        self._feedback, self._clock = feedback, clock
        self._made: OrderedDict[tuple[str, int], _Made] = OrderedDict()
        self._making: dict[tuple[str, int], asyncio.Task[dict[str, Any] | None]] = {}
        self._turn = asyncio.Lock()
        self._tasks = Tasks()
        self.computed = 0

    async def aclose(self) -> None:
        await self._tasks.aclose()

    async def of(self, team: str, days: int) -> dict[str, Any]:
        """Figures of the last `days` days of UTC, today included. Raises LedgerUnavailable, Overloaded."""
        asked = (team, days)
        made = self._made.get(asked)
        if made is not None and self._clock.monotonic() < made.good_until:
            return made.figures
        task = self._making.get(asked)
        if task is None:
            task = self._making[asked] = self._tasks.spawn(self._make(asked), "dashboard figures")
        try:
            async with asyncio.timeout(WAIT_S):
                figures = await asyncio.shield(task)
        except TimeoutError:
            raise Overloaded(
                "The figures are still being added up; ask again or for fewer days.", retry_after_s=WAIT_S
            ) from None
        if figures is None:
            raise LedgerUnavailable("The ledger cannot be read; check that its database is up.", retry_after_s=5.0)
        return figures

    async def teams(self) -> list[str]:
        """Every team that has a key or a policy of its own, for an admin to choose from."""
        try:
            known = await self._database.run(queries.teams, writes=False)
        except SQLAlchemyError as error:
            raise LedgerUnavailable("The teams cannot be read from the database.", retry_after_s=5.0) from error
        return sorted(known | (self._policies.current.policies.keys() - {DEFAULT}))

    async def _make(self, asked: tuple[str, int]) -> dict[str, Any] | None:
        """The figures, kept for as long as they took to make is worth; None while the database is away."""
        team, days = asked
        try:
            async with self._turn:
                began = self._clock.monotonic()
                figures = await asyncio.to_thread(self._read, team, days)
                figures["feedback"] = await self._feedback.quality(team)
                ended = self._clock.monotonic()
        except SQLAlchemyError as error:
            log.warning("the dashboard's figures cannot be read: %s", error)
            return None
        finally:
            del self._making[asked]
        rest_s = min(RESTS * (ended - began), LONGEST_REST_S)
        figures["refresh_s"] = max(REFRESH_S, math.ceil(rest_s))
        self._made[asked] = _Made(figures, ended + rest_s)
        self._made.move_to_end(asked)
        if len(self._made) > _KEPT:
            self._made.popitem(last=False)
        self.computed += 1
        return figures

    def _read(self, team: str, days: int) -> dict[str, Any]:
        now = self._clock.time()
        since = (now // _DAY_S - days + 1) * _DAY_S
        policy, _ = self._policies.current.find(team)
        which = queries.real(team, since, now)
        with snapshot(self._database) as connection:
            reports = read_usage(connection, GROUPINGS, team=team, since=since, until=now, prices=self._prices)
            figures = {
                **_usage(reports),
                "team": team,
                "mode": policy.mode,
                "at": iso(now),
                "since": iso(since),
                "days": days,
                "budgets": [_budget(connection, team, budget, now) for budget in policy.budget],
                "tiers": queries.tiers(connection, which),
                "cache": queries.cache_answers(connection, which),
                "latency": queries.latency(connection, which),
                "dearest": queries.dearest(connection, which, DEAREST),
                "alerts": queries.latest_alerts(connection, team, ALERTS),
            }
            ids = {row["key"] for row in figures["by"]["key"]}
            figures["key_names"] = queries.key_names(connection, ids)
        return figures


def _usage(reports: Sequence[Report]) -> dict[str, Any]:
    """The usage report's own words; total and simulated are the same in each of `reports`."""
    written = [as_object(report) for report in reports]
    return {
        "currency": written[0]["currency"],
        "total": written[0]["total"],
        "simulated": written[0]["simulated"],
        "by": {by: one["rows"] for (by,), one in zip(GROUPINGS, written, strict=True)},
    }


def _budget(connection: Connection, team: str, budget: Budget, now: float) -> dict[str, Any]:
    """Spent, left and ahead in the window that `now` lies in; the forecast is the one that alerts use."""
    start, end = window = window_bounds(budget.window, budget.timezone, now)
    spent = spent_in_ledger(connection, and_(ledger.c.team == team, ledger.c.at >= start, ledger.c.at < end))
    limit = usd_to_pico(budget.limit_usd)
    ahead = forecast_pico(spent, window, now)
    endless = math.isinf(end)
    return {
        "window": budget.window,
        "timezone": budget.timezone,
        "start": None if endless else iso(start),
        "end": None if endless else iso(end),
        "passed": None if endless else (now - start) / (end - start),
        "limit_usd": dollars(limit),
        "spent_usd": dollars(spent),
        "left_usd": dollars(limit - spent),
        "used": spent / limit,
        "forecast_usd": None if ahead is None else dollars(ahead),
        "forecast_used": None if ahead is None else ahead / limit,
        "alerts": [one if one == "forecast" else f"{one * 100:.4g}%" for one in budget.alerts],
        "on_exhausted": budget.on_exhausted,
    }
