"""Data for the page: the figures of one team or of all teams, as JSON. Amounts are exact decimal text."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from gateway.dashboard import days, queries
from gateway.dashboard.parts import ALL_TEAMS, FEEDBACK, PARTS, Prices, Read, Scope, invented
from gateway.dashboard.periods import USUAL, Period, parse_period
from gateway.domain.backend import Backend
from gateway.domain.money.windows import iso, zone_named
from gateway.domain.policy import Policy
from gateway.domain.protocols import Clock
from gateway.errors import LedgerUnavailable, Overloaded
from gateway.learning.feedback import Feedback
from gateway.ledger.reports.turns import MOST_WAITING, Turns
from gateway.ledger.store.sums import snapshot
from gateway.policy.load import DEFAULT, Policies
from gateway.runtime.tasks import Tasks
from gateway.state.sql.database import Database

log = logging.getLogger(__name__)

EVERYTHING = (*PARTS, FEEDBACK)
ALL = ""
"""In place of a team's name: all teams."""
REFRESH_S = 5.0
"""Minimum seconds between two reloads of the data while the page is visible."""
KEEP_FACTOR = 20
"""Figures that took t seconds to compute are kept for `KEEP_FACTOR` × t seconds. In a large ledger, t may be several
seconds."""
LONGEST_REST_S = 300.0
WAIT_S = 30.0
_KEPT = 512

Errors = Callable[[], Mapping[str, Mapping[str, Any]]]
"""Team → wrong hits of its semantic cache (`Cache.team_errors`). It is called in the event loop's thread."""
_Asked = tuple[str, str, str]
"""Team, period, part."""


@dataclass(frozen=True, slots=True)
class _Made:
    values: dict[str, Any]
    period: Period
    rest_s: float
    good_until: float


class Figures:
    """Computes the figures of teams for the page, part by part, and keeps each part for a while. The figures of only
    one team are computed at a time, so that the page does not delay the ledger's writers."""

    def __init__(
        self,
        *,
        database: Database,
        policies: Policies,
        prices: Prices,
        backends: Callable[[], Sequence[Backend]],
        feedback: Feedback,
        errors: Errors,
        clock: Clock = time,
    ) -> None:
        self._database, self._policies, self._prices, self._backends = database, policies, prices, backends
        self._feedback, self._errors, self._clock = feedback, errors, clock
        self._made: OrderedDict[_Asked, _Made] = OrderedDict()
        self._making: dict[tuple[str, str, tuple[str, ...]], asyncio.Task[bool]] = {}
        self._turns = Turns(1)
        self._tasks = Tasks()
        self.computed = 0

    async def aclose(self) -> None:
        await self._tasks.aclose()

    async def of(self, team: str, period: str = USUAL, parts: Sequence[str] = EVERYTHING) -> dict[str, Any]:
        """The figures of `team` (`ALL`: of all teams) in `period` (see `parse_period`). `parts`: names of the parts to
        return. Raises ValueError for an unknown period or part, LedgerUnavailable, Overloaded."""
        self.period(team, period)
        known = ALL_TEAMS if team == ALL else dict.fromkeys(EVERYTHING)
        wanted = tuple(dict.fromkeys(parts))
        if unknown := [part for part in wanted if part not in known]:
            raise ValueError(f"there is no part {unknown[0]!r}; parts are {', '.join(known)}")
        found = self._kept(team, period, wanted)
        if found is None:
            found = await self._computed(team, period, wanted)
        return self._joined(team, found)

    async def _computed(self, team: str, period: str, wanted: tuple[str, ...]) -> list[_Made]:
        asked = (team, period, wanted)
        task = self._making.get(asked)
        if task is None:
            if sum(each[0] == team for each in self._making) >= MOST_WAITING:
                raise Overloaded("Too many requests for this team's figures wait; try again.", retry_after_s=1.0)
            task = self._making[asked] = self._tasks.spawn(self._make(*asked), "dashboard figures")
        try:
            async with asyncio.timeout(WAIT_S):
                done = await asyncio.shield(task)
        except TimeoutError:
            raise Overloaded(
                "Computing the figures takes too long; try again, or choose fewer days.",
                retry_after_s=WAIT_S,
            ) from None
        if not done:
            raise LedgerUnavailable("The ledger cannot be read; check that its database is up.", retry_after_s=5.0)
        return [self._made[team, period, part] for part in wanted]

    def _kept(self, team: str, period: str, wanted: Sequence[str]) -> list[_Made] | None:
        """The parts with the names `wanted`, if all of them were kept and are still valid; otherwise None."""
        found = [self._made.get((team, period, part)) for part in wanted]
        good = [one for one in found if one is not None and self._clock.monotonic() < one.good_until]
        return good if len(good) == len(wanted) else None

    def _joined(self, team: str, found: Sequence[_Made]) -> dict[str, Any]:
        period = found[0].period if found else self.period(team, USUAL)
        figures: dict[str, Any] = {
            "team": team,
            "mode": self._policy(team).mode,
            "period": period.text,
            "at": iso(period.now),
            "since": iso(period.since),
            "until": iso(period.until),
            "days": period.days,
            "first": period.first.isoformat(),
            "end": period.end.isoformat(timespec="seconds"),
            "refresh_s": max(REFRESH_S, math.ceil(max((one.rest_s for one in found), default=0.0))),
        }
        names: dict[str, str] = {}
        for one in found:
            figures |= one.values
            names |= one.values.get("key_names", {})
        return figures | {"key_names": names}

    def forget(self, team: str, part: str) -> None:
        """Drop a kept part of this team and of all teams, so that the next request computes it again."""
        for asked in [one for one in self._made if (one[0] == team and one[2] == part) or one[0] == ALL]:
            del self._made[asked]

    def _policy(self, team: str) -> Policy:
        return self._policies.current.find(team)[0]

    def period(self, team: str, text: str) -> Period:
        """Parse the period `text`, in the time zone of the team's policy; for all teams, in that of the default policy.
        Raises ValueError."""
        return parse_period(text, self._clock.time(), zone_named(self._policy(team).timezone))

    def zones(self, teams: Sequence[str]) -> dict[str, str]:
        """The time zone of each team's policy: team → zone. Teams in UTC are left out."""
        zones = {team: self._policy(team).timezone for team in teams}
        return {team: zone for team, zone in zones.items() if zone != "UTC"}

    def invented(self, teams: Sequence[str]) -> list[str]:
        """The subset of `teams` whose requests are invented (made by `thriftgate dev history`)."""
        return [team for team in teams if invented(self._policies.current, team)]

    async def teams(self) -> list[str]:
        """All teams that have a key or a policy of their own, sorted. An admin can choose one of them on the page.
        Raises LedgerUnavailable."""
        try:
            known = await self._database.run(queries.teams, writes=False)
        except SQLAlchemyError as error:
            raise LedgerUnavailable("The teams cannot be read from the database.", retry_after_s=5.0) from error
        return sorted(known | (self._policies.current.policies.keys() - {DEFAULT}))

    async def _make(self, team: str, period: str, wanted: tuple[str, ...]) -> bool:
        """Compute the parts that are no longer valid, all from the same rows, and keep them for a while. A part that
        takes longer to compute is kept longer. Returns False if the database is unavailable."""
        try:
            async with self._turns.of(team):
                missing = [part for part in wanted if self._kept(team, period, [part]) is None]
                parts = [part for part in missing if part != FEEDBACK]
                made = await asyncio.to_thread(self._read, team, period, parts, self._errors())
                if FEEDBACK in missing:
                    began = self._clock.monotonic()
                    quality = await self._feedback.quality(team)
                    made[FEEDBACK] = self._rested({"feedback": quality}, self.period(team, period), began)
        except SQLAlchemyError as error:
            log.warning("the dashboard's figures cannot be read: %s", error)
            return False
        finally:
            del self._making[team, period, wanted]
        for part, values in made.items():
            self._made[team, period, part] = values
            self._made.move_to_end((team, period, part))
        while len(self._made) > _KEPT:
            self._made.popitem(last=False)
        self.computed += 1
        return True

    def _read(
        self, team: str, text: str, missing: Sequence[str], errors: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, _Made]:
        readers: Mapping[str, Read] = ALL_TEAMS if team == ALL else PARTS
        found: dict[str, _Made] = {}
        with snapshot(self._database) as connection:
            period = self.period(team, text)
            scope = Scope(team, period, self._policies.current, self._prices, self._backends(), errors)
            for part in missing:
                began = self._clock.monotonic()
                values = readers[part](connection, scope)
                if ids := _keys(values):
                    values["key_names"] = queries.key_names(connection, ids)
                found[part] = self._rested(values, period, began)
        if scope.computed:
            days.store(self._database, scope.computed, period.now)
        return found

    def _rested(self, values: dict[str, Any], period: Period, began: float) -> _Made:
        ended = self._clock.monotonic()
        rest_s = min(KEEP_FACTOR * (ended - began), LONGEST_REST_S)
        return _Made(values, period, rest_s, ended + rest_s)


def _keys(values: Mapping[str, Any]) -> set[str]:
    """The ids of all API keys that occur in a part of the figures."""
    subjects = {
        one["subject"] for budget in values.get("budgets", ()) for one in budget["standings"] if budget["per"] == "key"
    }
    rows = [*values.get("by", {}).get("key", ()), *values.get("dearest", ())]
    return subjects | {row["key"] for row in rows}
