"""Tells people, once, that a budget is being used up: a log line, and a webhook until it is accepted."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
from sqlalchemy import Connection, and_, select, update
from sqlalchemy.exc import SQLAlchemyError

from gateway.domain.policy import Budget, Policy
from gateway.domain.protocols import Clock
from gateway.domain.units import usd_to_pico
from gateway.domain.windows import iso, window_bounds
from gateway.ledger.once import insert_once
from gateway.ledger.rows import Row
from gateway.ledger.spending import spent_in_ledger
from gateway.ledger.thresholds import Alert, due
from gateway.ledger.webhooks import TIMEOUT_S, Webhooks
from gateway.state.sql import Database
from gateway.state.tables import alerts, ledger

log = logging.getLogger(__name__)

INTERVAL_S = 2.0
RESTS = 20
"""A look at a large ledger may take seconds: so many times as long it rests afterwards."""
LOOK_BACK_S = 3600.0
"""At its start a new process looks at the windows of an hour ago too, in case nobody did."""
LONGEST_WAIT_S = 600.0
BATCH = 20
_GRAIN_S = 900
"""No window in any time zone begins within a quarter of an hour."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One alert to one receiver; `target` is empty where the policy names none."""

    id: str
    team: str
    created_at: float
    payload: dict[str, Any]
    target: str
    delivered_at: float | None
    tries: int
    last_error: str


class Alerts:
    """Runs beside the writer and hears from it what is new. Any number of these may share one database."""

    def __init__(
        self,
        database: Database,
        policies: Callable[[], Mapping[str, Policy]],
        *,
        webhooks: Webhooks | None = None,
        interval_s: float = INTERVAL_S,
        clock: Clock = time,
    ) -> None:
        self._database, self._policies, self._clock = database, policies, clock
        self._webhooks = webhooks or Webhooks()
        self._interval_s = interval_s
        self._seen: Mapping[str, Policy] | None = None
        self._touched: dict[str, set[float]] = {}
        self._heard: dict[str, int] = {}
        """Pico-dollars of all rows that a team's spend was noticed by."""
        self._summed: dict[tuple[str, tuple[float, float]], tuple[int, int]] = {}
        """By team and current window, what the ledger said last, and what had been heard before."""
        self._known: set[str] = set()
        self._used: dict[tuple[str, str, str], tuple[float, float]] = {}
        self._created = self._delivered = self._failures = 0

    async def open(self) -> None:
        await self._webhooks.open()

    async def aclose(self) -> None:
        await self._webhooks.aclose()

    def notice(self, rows: Iterable[Row]) -> None:
        """Rows that are new in the ledger; the writer's `on_rows`."""
        for row in rows:
            if row.cost_pico and not row.simulated:
                self._touched.setdefault(row.team, set()).add(row.at // _GRAIN_S * _GRAIN_S)
                self._heard[row.team] = self._heard.get(row.team, 0) + row.cost_pico

    async def run(self) -> None:
        """Look and deliver for ever, each at its own pace."""
        await asyncio.gather(self._look_forever(), self._deliver_forever())

    async def _look_forever(self) -> None:
        while True:
            began = self._clock.monotonic()
            try:
                await self.check_once()
            except SQLAlchemyError as error:
                log.warning("budget alerts cannot be checked: %s", error)
            await asyncio.sleep(max(self._interval_s, RESTS * (self._clock.monotonic() - began)))

    async def _deliver_forever(self) -> None:
        while True:
            try:
                busy = await self.deliver_once() == BATCH
            except SQLAlchemyError as error:
                busy = False
                log.warning("budget alerts cannot be delivered: %s", error)
            if not busy:
                await asyncio.sleep(self._interval_s)

    async def check_once(self) -> int:
        """Write down the alerts that are due and were not yet; how many. Raises SQLAlchemyError."""
        policies, now = self._policies(), self._clock.time()
        touched, self._touched = self._touched, {}
        if policies is not self._seen:
            # At the start, or with other budgets, every team must be looked at.
            self._used.clear()
            self._summed.clear()
            back = {now, now - LOOK_BACK_S} if self._seen is None else {now}
            for team in policies:
                touched.setdefault(team, set()).update(back)
        try:
            fired = await asyncio.to_thread(self._check, policies, touched, now)
        except BaseException:
            for team, times in touched.items():
                self._touched.setdefault(team, set()).update(times)
            raise
        self._seen = policies
        self._created += len(fired)
        for alert in fired:
            log.warning("budget alert: %s", alert.payload["text"])
        return len(fired)

    def _check(self, policies: Mapping[str, Policy], touched: Mapping[str, set[float]], now: float) -> list[Alert]:
        fired = []
        for team, times in touched.items():
            if (policy := policies.get(team)) is None:
                continue
            for budget in policy.budget:
                for window in sorted({window_bounds(budget.window, budget.timezone, at) for at in {*times, now}}):
                    fired += self._check_window(team, budget, window, now)
        return fired

    def _check_window(self, team: str, budget: Budget, window: tuple[float, float], now: float) -> list[Alert]:
        start, end = window
        spent = self._at_most(team, window)
        if spent is None or self._tells(team, budget, spent, window, now):
            spent = self._sum(team, window, now)
        if start <= now < end:
            limit = f"{budget.limit_usd.normalize():f}"
            self._used[team, budget.window, limit] = (spent / usd_to_pico(budget.limit_usd), end)
        found = [alert for alert in due(team, budget, spent, window, now) if alert.id not in self._known]
        if not found:
            return []
        with self._database.begin() as connection:
            fired = [alert for alert in found if self._write(connection, alert, budget, team, now)]
        self._known.update(alert.id for alert in found)
        return fired

    def _at_most(self, team: str, window: tuple[float, float]) -> int | None:
        """What is spent, or a little more, without asking the ledger; None where it must be asked.

        A sum takes long in a large ledger. Beside SQLite's only writer, nothing is spent but what was heard of.
        """
        known = self._summed.get((team, window))
        return None if known is None else known[0] + self._heard.get(team, 0) - known[1]

    def _tells(self, team: str, budget: Budget, at_most: int, window: tuple[float, float], now: float) -> bool:
        """Might it call for a new alert to have spent `at_most`, or less?"""
        limit = usd_to_pico(budget.limit_usd)
        return self._summed[team, window][0] < limit <= at_most or any(
            alert.id not in self._known for alert in due(team, budget, at_most, window, now)
        )

    def _sum(self, team: str, window: tuple[float, float], now: float) -> int:
        start, end = window
        heard = self._heard.get(team, 0)
        with self._database.read() as connection:
            spent = spent_in_ledger(connection, and_(ledger.c.team == team, ledger.c.at >= start, ledger.c.at < end))
        if self._database.sqlite and start <= now < end:
            self._summed = {known: sums for known, sums in self._summed.items() if now < known[1][1]}
            self._summed[team, window] = spent, heard
        return spent

    def _write(self, connection: Connection, alert: Alert, budget: Budget, team: str, now: float) -> bool:
        """A row for the alert itself, whose key decides who of many noticed first, and one for each receiver."""
        payload = orjson.dumps({"id": alert.id, **alert.payload}).decode()
        fields = ("id", "team", "created_at", "payload", "target", "delivered_at", "tries", "next_try_at", "last_error")
        if insert_once(connection, alerts, fields, [(alert.id, team, now, payload, "", now, 0, 0.0, "")]) == 0:
            return False
        targets = dict.fromkeys(notify.webhook for notify in budget.notify)
        letters = [(alert.addressed(target), team, now, payload, target, None, 0, 0.0, "") for target in targets]
        insert_once(connection, alerts, fields, letters)
        return True

    async def deliver_once(self) -> int:
        """Post what is due to be posted; how many were tried. Raises SQLAlchemyError."""
        now = self._clock.time()
        letters = await self._database.run(partial(_claim, now=now))
        verdicts = await self._webhooks.post_all([(target, id, payload) for id, target, payload, _ in letters])
        done = self._clock.time()
        for (id, target, _, tries), verdict in zip(letters, verdicts, strict=True):
            if verdict:
                self._failures += 1
                log.warning("budget alert %s to %s: %s; trying again", id, target, verdict)
            else:
                self._delivered += 1
            outcome = {
                "delivered_at": None if verdict else done,
                "next_try_at": done + _wait_s(tries),
                "last_error": verdict[:300],
            }
            await self._database.run(partial(_settle, id=id, outcome=outcome))
        return len(letters)

    async def sent(self, team: str | None = None, limit: int = 100) -> list[Sent]:
        """The latest alerts, newest first, with what became of them. Raises SQLAlchemyError."""
        return await self._database.run(partial(_list, team=team, limit=limit), writes=False)

    async def test(self, team: str) -> dict[str, str]:
        """Post a test alert to every receiver of `team` now: target → what went wrong, empty if accepted."""
        policy = self._policies().get(team)
        targets = (
            dict.fromkeys(notify.webhook for budget in policy.budget for notify in budget.notify) if policy else {}
        )
        now = self._clock.time()
        payload = orjson.dumps(
            {
                "id": f"test/{team}/{iso(now)}",
                "test": True,
                "team": team,
                **dict.fromkeys(("budget", "window", "threshold", "spent_usd", "limit_usd")),
                "at": iso(now),
                "text": f"This is a test of team {team}'s budget alerts; nothing was spent.",
            }
        )
        verdicts = await self._webhooks.post_all([(target, f"test/{team}/{iso(now)}", payload) for target in targets])
        return dict(zip(targets, verdicts, strict=True))

    def used(self) -> dict[tuple[str, str, str], float]:
        """Spent share of each budget, by team, window and limit, as of the last look at it."""
        now = self._clock.time()
        return {budget: share if now < end else 0.0 for budget, (share, end) in self._used.copy().items()}

    def stats(self) -> dict[str, int | float | str]:
        return {"created": self._created, "delivered": self._delivered, "failures": self._failures}


def _wait_s(tries: int) -> float:
    return min(2.0 ** min(tries, 20), LONGEST_WAIT_S)


def _claim(connection: Connection, now: float) -> list[tuple[str, str, bytes, int]]:
    """(id, target, payload, tries) of what this process shall post; others leave it alone until the time is up."""
    table = alerts.c
    waiting = connection.execute(
        select(table.id, table.target, table.payload, table.tries, table.next_try_at)
        .where(table.delivered_at.is_(None), table.next_try_at <= now)
        .order_by(table.next_try_at)
        .limit(BATCH)
    ).all()
    claimed = []
    for id, target, payload, tries, next_try_at in waiting:
        mine = connection.execute(
            update(alerts)
            .where(table.id == id, table.delivered_at.is_(None), table.next_try_at == next_try_at)
            .values(tries=tries + 1, next_try_at=now + 2 * TIMEOUT_S + _wait_s(tries + 1))
        )
        if mine.rowcount == 1:
            claimed.append((id, target, payload.encode(), tries + 1))
    return claimed


def _settle(connection: Connection, id: str, outcome: Mapping[str, Any]) -> None:
    connection.execute(update(alerts).where(alerts.c.id == id).values(**outcome))


def _list(connection: Connection, team: str | None, limit: int) -> list[Sent]:
    table = alerts.c
    query = select(
        *(table.id, table.team, table.created_at, table.payload, table.target),
        *(table.delivered_at, table.tries, table.last_error),
    )
    if team is not None:
        query = query.where(table.team == team)
    found = connection.execute(query.order_by(table.created_at.desc(), table.id).limit(limit)).all()
    return [
        Sent(id, owner, created, orjson.loads(payload), target, delivered, tries, error)
        for id, owner, created, payload, target, delivered, tries, error in found
    ]
