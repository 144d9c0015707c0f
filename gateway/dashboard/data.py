"""Data for the page: the figures of one team at one moment, as JSON. Amounts are exact decimal text."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from gateway.cache.quality import counters
from gateway.dashboard import budgets, mix, queries
from gateway.domain.backend import Backend
from gateway.domain.money.windows import iso
from gateway.domain.policy import Policy
from gateway.domain.protocols import Clock, PriceList
from gateway.errors import LedgerUnavailable, Overloaded
from gateway.learning.feedback import Feedback
from gateway.ledger.reports import savings
from gateway.ledger.reports.formats import as_object
from gateway.ledger.reports.report import Report, SimulatedCall, read_usage
from gateway.ledger.store.sums import snapshot
from gateway.policy.load import DEFAULT, Policies
from gateway.runtime.tasks import Tasks
from gateway.state.sql.database import Database

log = logging.getLogger(__name__)

MOST_DAYS = 366
DEAREST = 10
ALERTS = 8
GROUPINGS = ("day", "backend", "model", "key", "tag")
HOURLY_DAYS = 2
"""Maximum days of a period for which hourly figures are computed as well."""
REFRESH_S = 5.0
"""Minimum seconds between two reloads of the data while the page is visible."""
KEEP_FACTOR = 20
"""Figures that took t seconds to compute are kept for `KEEP_FACTOR` × t seconds. In a large ledger, t may be several
seconds."""
LONGEST_REST_S = 300.0
WAIT_S = 30.0
_KEPT = 64
_DAY_S = 86400


class Prices(SimulatedCall, PriceList, Protocol):
    """The price list, and the prices that calls of simulated backends would have if these backends were real."""


@dataclass(frozen=True, slots=True)
class _Made:
    figures: dict[str, Any]
    good_until: float


class Figures:
    """Computes the figures of teams and keeps them for a while. Only one team's figures are computed at a time, so that
    the page does not delay the ledger's writers."""

    def __init__(
        self,
        *,
        database: Database,
        policies: Policies,
        prices: Prices,
        backends: Callable[[], Sequence[Backend]],
        feedback: Feedback,
        clock: Clock = time,
    ) -> None:
        self._database, self._policies, self._prices, self._backends = database, policies, prices, backends
        self._feedback, self._clock = feedback, clock
        self._made: OrderedDict[tuple[str, int], _Made] = OrderedDict()
        self._making: dict[tuple[str, int], asyncio.Task[dict[str, Any] | None]] = {}
        self._turn = asyncio.Lock()
        self._tasks = Tasks()
        self.computed = 0

    async def aclose(self) -> None:
        await self._tasks.aclose()

    async def of(self, team: str, days: int) -> dict[str, Any]:
        """The figures of a team for the last `days` days (UTC), including today. Raises LedgerUnavailable,
        Overloaded."""
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
        """All teams that have a key or a separate policy, sorted. An admin can choose one of them on the page. Raises
        LedgerUnavailable."""
        try:
            known = await self._database.run(queries.teams, writes=False)
        except SQLAlchemyError as error:
            raise LedgerUnavailable("The teams cannot be read from the database.", retry_after_s=5.0) from error
        return sorted(known | (self._policies.current.policies.keys() - {DEFAULT}))

    async def _make(self, asked: tuple[str, int]) -> dict[str, Any] | None:
        """Compute the figures for `asked` (team, number of days) and keep them for a while. The longer the computation
        took, the longer the figures are kept. None if the database is unavailable."""
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
        rest_s = min(KEEP_FACTOR * (ended - began), LONGEST_REST_S)
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
        groupings = [(by,) for by in GROUPINGS] + ([("hour",)] if days <= HOURLY_DAYS else [])
        single = queries.raw(team, since, now)
        with snapshot(self._database) as connection:
            reports = read_usage(connection, groupings, team=team, since=since, until=now, prices=self._prices)
            cells = mix.cells(connection, team, since, now)
            figures = {
                **_usage(reports),
                "team": team,
                "mode": policy.mode,
                "at": iso(now),
                "since": iso(since),
                "days": days,
                "budgets": budgets.of(connection, team, policy, now),
                "savings": self._savings(connection, team, policy, since, now),
                "tiers": mix.tiers(cells),
                "difficulty": mix.difficulty(cells),
                "cache": mix.cache(cells),
                "wrong_hits": _wrong_hits(connection, team, since, now),
                "latency": queries.latency(connection, single),
                "dearest": queries.dearest(connection, single, DEAREST),
                "alerts": queries.latest_alerts(connection, team, ALERTS),
            }
            figures["key_names"] = queries.key_names(connection, _keys(figures))
        return figures

    def _savings(self, connection: Connection, team: str, policy: Policy, since: float, until: float) -> dict[str, Any]:
        """The savings of a team, with the same figures as in `usage --savings`."""
        reference = savings.reference_of(policy, self._backends(), self._prices)
        price = None if reference is None else self._prices.price(reference)
        against = None if reference is None or price is None else (reference, price)
        return savings.as_object(savings.statements(connection, {team: against}, since=since, until=until))


def _wrong_hits(connection: Connection, team: str, since: float, until: float) -> dict[str, Any] | None:
    """The rate of wrong semantic cache hits, measured on the team's own look-ups; None if the team had no semantic
    look-up."""
    counts = counters.read(connection, team=team, since=since, until=until).get(team)
    return None if counts is None else counts.as_object()


def _keys(figures: dict[str, Any]) -> set[str]:
    """The ids of all keys that the figures contain."""
    subjects = {
        one["subject"] for budget in figures["budgets"] for one in budget["standings"] if budget["per"] == "key"
    }
    return subjects | {row["key"] for row in figures["by"]["key"]} | {row["key"] for row in figures["dearest"]}


def _usage(reports: Sequence[Report]) -> dict[str, Any]:
    """The usage report in the page's form: the rows of each report in `reports` are under `by` and its grouping. Totals
    are equal in all reports."""
    written = [as_object(report) for report in reports]
    return {
        "currency": written[0]["currency"],
        "total": written[0]["total"],
        "simulated": written[0]["simulated"],
        "by": {report.by[0]: one["rows"] for report, one in zip(reports, written, strict=True)},
    }
