"""Runs alerting: detects, delivers and escalates, and answers queries about past alerts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import orjson
from sqlalchemy.exc import SQLAlchemyError

from gateway.alerts.alert import KINDS, Alert, receivers, targets
from gateway.alerts.delivery import deliveries
from gateway.alerts.delivery.deliveries import BATCH, Delivery, DeliveryResult
from gateway.alerts.delivery.receivers import TIMEOUT_S, Answer, Receivers
from gateway.alerts.detect.samples import sample
from gateway.alerts.detect.watch import Watch
from gateway.alerts.detect.weekly_report import References
from gateway.domain.money.budget import Budget
from gateway.domain.policy import AlertsPolicy, Policy
from gateway.domain.protocols import Clock
from gateway.ledger.reports.objectives import Objective
from gateway.ledger.rows import Row
from gateway.state.sql.database import Database

log = logging.getLogger(__name__)

INTERVAL_S = 2.0
PAUSE_FACTOR = 20
"""Factor for the pause after a check: the pause is at least this many times as long as the check took. A check of a
large ledger takes seconds."""


class Alerts:
    """Detects, delivers and escalates alerts. Runs in the process that writes the ledger. Processes of several
    hosts may share one database."""

    def __init__(
        self,
        database: Database,
        policies: Callable[[], Mapping[str, Policy]],
        *,
        organisations: Mapping[str, Sequence[Budget]] = MappingProxyType({}),
        reference_of: References = lambda policy: None,
        receivers: Receivers | None = None,
        interval_s: float = INTERVAL_S,
        clock: Clock = time,
    ) -> None:
        self._database, self._policies, self._clock = database, policies, clock
        self._watch = Watch(database, policies, organisations=organisations, reference_of=reference_of, clock=clock)
        self._receivers = receivers or Receivers()
        self._interval_s = interval_s
        self._counts = {"created": 0, "delivered": 0, "failures": 0, "dead": 0, "escalated": 0}

    async def open(self) -> None:
        await self._receivers.open()

    async def aclose(self) -> None:
        await self._receivers.aclose()

    def notice(self, rows: Iterable[Row]) -> None:
        """Pass new ledger rows to the next check. The ledger's writer calls this method (`on_rows`)."""
        self._watch.notice(rows)

    def used(self) -> dict[tuple[str, str, str], float]:
        """The spent share of each budget's limit at the budget's last check: (team, window, limit) → share."""
        return self._watch.used()

    def undrained(self) -> dict[str, int]:
        """Host → the number of its dead workers for whose calls budgets still held money at the last check."""
        return self._watch.undrained()

    def objectives(self) -> tuple[Objective, ...]:
        """The teams' quality objectives, as measured at the last check."""
        return self._watch.objectives()

    def stats(self) -> dict[str, int | float | str]:
        return dict(self._counts)

    async def run(self) -> None:
        """Detect and deliver alerts until cancelled. Detection and delivery run at the same time, each with its own
        pauses."""
        await asyncio.gather(self._check_forever(), self._deliver_forever())

    async def _check_forever(self) -> None:
        while True:
            began = self._clock.monotonic()
            try:
                await self.check_once()
            except SQLAlchemyError as error:
                log.warning("alerts cannot be checked: %s", error)
            await asyncio.sleep(max(self._interval_s, PAUSE_FACTOR * (self._clock.monotonic() - began)))

    async def _deliver_forever(self) -> None:
        while True:
            try:
                await self.escalate_once()
                busy = await self.deliver_once() == BATCH
            except SQLAlchemyError as error:
                busy = False
                log.warning("alerts cannot be delivered: %s", error)
            if not busy:
                await asyncio.sleep(self._interval_s)

    async def check_once(self) -> int:
        """Store the alerts that are due and not stored yet. Returns the number of stored alerts. Raises
        SQLAlchemyError."""
        fired = await self._watch.check()
        self._counts["created"] += len(fired)
        for alert in fired:
            _log(alert)
        return len(fired)

    async def deliver_once(self) -> int:
        """Attempt the deliveries that are due. Returns the number of attempts. Raises SQLAlchemyError."""
        due = await self._database.run(partial(deliveries.claim, now=self._clock.time(), busy_s=2 * TIMEOUT_S))
        answers = await self._receivers.deliver_all([(each.target, each.id, each.payload) for each in due])
        for delivery, answer in zip(due, answers, strict=True):
            await self._settle(delivery, answer)
        return len(due)

    async def _settle(self, delivery: Delivery, answer: Answer) -> None:
        now = self._clock.time()
        if answer.accepted:
            self._counts["delivered"] += 1
            await self._database.run(partial(deliveries.delivered, delivery=delivery, now=now))
            return
        self._counts["failures"] += 1
        dead = await self._database.run(partial(deliveries.refused, delivery=delivery, now=now, why=answer.said))
        self._counts["dead"] += dead
        level, outcome = (logging.ERROR, "given up") if dead else (logging.WARNING, "trying again")
        log.log(level, "alert %s to %s: %s; %s", delivery.id, delivery.target, answer.said, outcome)

    async def escalate_once(self) -> int:
        """Queue deliveries to the escalation receivers for the alerts that were not acknowledged in time. Returns
        the number of these alerts. Raises SQLAlchemyError.
        """
        policies = self._policies()

        def policy_of(team: str) -> AlertsPolicy | None:
            found = policies.get(team)
            return None if found is None else found.alerts

        escalated = await self._database.run(partial(deliveries.escalate, policy_of=policy_of, now=self._clock.time()))
        self._counts["escalated"] += len(escalated)
        for id in escalated:
            log.error("alert %s: nobody acknowledged it in time, so it is sent to the escalation receivers", id)
        return len(escalated)

    async def sent(self, team: str | None = None, limit: int = 100) -> list[DeliveryResult]:
        """The latest alerts and their deliveries, newest first. Raises SQLAlchemyError."""
        return await self._database.run(partial(deliveries.latest, team=team, limit=limit), writes=False)

    async def dead(self, team: str | None = None, limit: int = 100) -> list[DeliveryResult]:
        """The deliveries that were given up, newest alert first. Raises SQLAlchemyError."""
        return await self._database.run(partial(deliveries.dead, team=team, limit=limit), writes=False)

    async def revive(self, team: str | None = None) -> int:
        """Try again to deliver the deliveries that were given up. Returns their number. Raises SQLAlchemyError."""
        return await self._database.run(partial(deliveries.revive, team=team, now=self._clock.time()))

    async def acknowledge(self, id: str, by: str) -> str | None:
        """Store that `by` acknowledged the alert `id`. Returns the alert's team, or None if no alert has this id.
        Raises SQLAlchemyError."""
        return await self._database.run(partial(deliveries.acknowledge, id=id, by=by, now=self._clock.time()))

    async def test(self, team: str) -> dict[str, dict[str, Answer]]:
        """Send one alert of each kind to every receiver of `team` now. Returns the receivers' answers: target → kind →
        answer."""
        policy = self._policies().get(team)
        named = targets(receivers(policy), "critical") if policy else []
        now = self._clock.time()
        samples = [sample(kind, team, now) for kind in KINDS]
        bodies = [(one, orjson.dumps({"id": one.id, **one.payload})) for one in samples]
        todo = [(target, one.id, body) for target in named for one, body in bodies]
        answers = iter(await self._receivers.deliver_all(todo))
        return {target: {one.kind: next(answers) for one in samples} for target in named}


def _log(alert: Alert) -> None:
    """Log an alert. Without a receiver, the log is the only place where an operator sees it."""
    log.log(
        logging.ERROR if alert.severity == "critical" else logging.WARNING,
        "%s alert: %s",
        alert.severity,
        alert.payload["text"],
    )
