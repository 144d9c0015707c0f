"""Answers `/v1/usage`: report, budgets, credits, objectives, savings and wrong cache hits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any

import orjson
from sqlalchemy import Connection
from starlette.responses import Response

from gateway.alerts.detect.standing import standings
from gateway.cache.quality import counters
from gateway.domain.backend import Backend
from gateway.domain.money.budget import Budget
from gateway.domain.money.price import Price
from gateway.domain.policy import Policy
from gateway.domain.protocols import Clock
from gateway.errors import BadRequest
from gateway.ledger.prices.discounts import CreditUse, drawn
from gateway.ledger.prices.price_book import PriceBook
from gateway.ledger.reports import focus, objectives, savings
from gateway.ledger.reports.dimensions import dimensions
from gateway.ledger.reports.formats import as_object, dollars
from gateway.ledger.reports.period import parse_when
from gateway.ledger.reports.report import Report, read_usage, teams
from gateway.ledger.reports.turns import Turns
from gateway.ledger.store.sums import snapshot
from gateway.settings.prices import PriceSettings
from gateway.state.sql.database import Database

_AT_ONCE = 2
"""Maximum number of queries that run at once, of all teams. One team has one query at a time."""


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """A query for usage. `team`: None for all teams. `since` and `until`: Unix seconds. `by`: the columns by which the
    figures are grouped (see `dimensions`). `zone`: the time zone of days and hours."""

    by: str = "model"
    team: str | None = None
    since: float | None = None
    until: float | None = None
    savings: bool = False
    zone: tzinfo = UTC


@dataclass(frozen=True, slots=True)
class Spent:
    """The figures that the routes for usage return: the spend report, and budgets, credits, objectives and savings
    as JSON values. All were read at one moment.
    """

    report: Report
    budgets: list[dict[str, Any]]
    credits: list[dict[str, Any]]
    objectives: list[dict[str, Any]]
    """The teams' objectives for quality (`slo`), now, whatever the period of the report."""
    wrong_hits: list[dict[str, Any]]
    """For each team that uses the semantic cache: how many of its cache hits were measured to be wrong."""
    savings: dict[str, Any] | None

    def as_object(self) -> dict[str, Any]:
        """The figures in the form of `thriftgate usage --json`, `/v1/usage` and `/admin/usage`."""
        beside = {"budgets": self.budgets, "credits": self.credits, "wrong_hits": self.wrong_hits}
        beside["objectives"] = self.objectives
        return as_object(self.report) | beside | ({} if self.savings is None else {"savings": self.savings})

    def as_json(self) -> bytes:
        return orjson.dumps(self.as_object(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


async def usage_response(spend: UsageFigures, query: Mapping[str, str], team: str | None) -> Response:
    """The answer to `?since=7d&until=&by=model&savings=true`, for `team` or for all teams. Raises BadRequest."""
    now = time.time()
    since, until = _moment(query, "since", now), _moment(query, "until", now)
    savings = query.get("savings", "false")
    if savings not in ("true", "false"):
        raise BadRequest("savings must be true or false.", param="savings")
    try:
        found = await spend.read(UsageQuery(query.get("by", "model"), team, since, until, savings == "true"))
    except ValueError as error:
        raise BadRequest(f"by: {error}", param="by") from error
    return Response(found.as_json(), media_type="application/json")


def _moment(query: Mapping[str, str], name: str, now: float) -> float | None:
    try:
        return parse_when(query[name], now) if name in query else None
    except ValueError as error:
        raise BadRequest(f"{name}: {error}", param=name) from error


class UsageFigures:
    """Reads figures from the ledger."""

    def __init__(
        self,
        database: Database,
        prices: PriceBook,
        *,
        policy_of: Callable[[str], Policy],
        backends: Callable[[], Sequence[Backend]],
        organisations: Mapping[str, tuple[Budget, ...]],
        terms: PriceSettings,
        clock: Clock = time,
    ) -> None:
        self._database, self._prices, self._policy_of, self._backends = database, prices, policy_of, backends
        self._organisations, self._terms, self._clock = organisations, terms, clock
        self._turns = Turns(_AT_ONCE)

    async def read(self, asked: UsageQuery) -> Spent:
        """Read the figures. Raises ValueError for an unknown grouping, SQLAlchemyError, and Overloaded if one team
        makes too many queries.
        """
        by = dimensions(asked.by)
        async with self._turns.of(asked.team or ""):
            return await asyncio.to_thread(self._read, by, asked)

    async def focus(self, asked: UsageQuery) -> list[dict[str, Any]]:
        """The attempts that the query `asked` selects, as rows in FinOps FOCUS format. Raises SQLAlchemyError,
        Overloaded.
        """
        async with self._turns.of(asked.team or ""):
            return await asyncio.to_thread(self._focus, asked)

    def _read(self, by: tuple[str, ...], asked: UsageQuery) -> Spent:
        period = {"since": asked.since, "until": asked.until}
        with snapshot(self._database) as connection:
            (report,) = read_usage(connection, [by], team=asked.team, prices=self._prices, zone=asked.zone, **period)
            names = teams(connection, **period) if asked.team is None else [asked.team]
            policies = {name: self._policy_of(name) for name in names}
            # A team must not see the spend of its organisation's other teams.
            above = self._organisations if asked.team is None else {}
            budgets = standings(connection, policies, above, self._clock.time())
            credits = [] if asked.team is not None else self._credits(connection)
            slos = [one.as_object() for one in objectives.of_teams(connection, policies, self._clock.time())]
            hits = counters.read(connection, team=asked.team, **period)
            statements = savings.statements(connection, self._references(policies), **period) if asked.savings else None
        wrong_hits = [{"team": team, **counts.as_object()} for team, counts in hits.items()]
        return Spent(
            report, budgets, credits, slos, wrong_hits, None if statements is None else savings.as_object(statements)
        )

    def _references(self, policies: Mapping[str, Policy]) -> dict[str, tuple[Backend, Price] | None]:
        backends = self._backends()
        return {team: savings.priced_reference(policy, backends, self._prices) for team, policy in policies.items()}

    def _credits(self, connection: Connection) -> list[dict[str, Any]]:
        return [_credit(one) for one in drawn(connection, self._terms.credits, self._providers())]

    def _providers(self) -> dict[str, str]:
        return {backend.name: self._prices.provider(backend) for backend in self._backends()}

    def _focus(self, asked: UsageQuery) -> list[dict[str, Any]]:
        with snapshot(self._database) as connection:
            found: Iterable[dict[str, Any]] = focus.rows(
                connection, self._providers(), team=asked.team, since=asked.since, until=asked.until
            )
            return list(found)


def _credit(one: CreditUse) -> dict[str, Any]:
    credit = one.credit
    return {
        "name": credit.name,
        "of": credit.target,
        "valid_from": credit.valid_from and credit.valid_from.isoformat(),
        "valid_until": credit.valid_until and credit.valid_until.isoformat(),
        "usd": f"{credit.usd:f}",
        "used_usd": dollars(one.used_pico),
        "left_usd": dollars(one.left_pico),
        "over_usd": dollars(one.over_pico),
    }
