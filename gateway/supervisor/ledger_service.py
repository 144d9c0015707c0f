"""The supervisor's part of the ledger: migrates the tables, writes the journals to the database, sends alerts."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from gateway.domain.policy import Policy
from gateway.ledger.rows import Row
from gateway.ledger.store.writer import Writer
from gateway.policy.load import Policies, PolicySet
from gateway.settings.files import ConfigError
from gateway.settings.gateway import Settings
from gateway.settings.receivers import Addresses, KnownReceivers
from gateway.state.sql.database import Database
from gateway.supervisor.figures import Figure

if TYPE_CHECKING:
    from gateway.alerts.alerts import Alerts

log = logging.getLogger(__name__)

MIGRATE_S = 10.0
"""Maximum seconds that the start waits for the database before requests are served. The journals keep the spend until
the database answers."""
RETRY_S = 2.0
LAST_DRAIN_S = 10.0
DRAIN_EVERY_S = 0.5
"""Seconds between reads of the journals."""

LEDGER = {
    "ledger_rows": "drained",
    "ledger_errors": "errors",
    "ledger_refused": "refused",
    "ledger_damaged": "damaged",
}
"""Key of a published figure → key in the writer's `stats()`."""


class AllPolicies(Mapping[str, Policy]):
    """The policies of all teams: team → policy. A team without a policy file has the default policy. Iterating yields
    only teams with a policy file."""

    def __init__(self, policies: PolicySet) -> None:
        self.policies = policies

    def __getitem__(self, team: str) -> Policy:
        return self.policies.find(team)[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.policies.policies)

    def __len__(self) -> int:
        return len(self.policies.policies)


class LedgerService:
    """Runs the ledger of one host. While the database is unavailable, the journals grow."""

    def __init__(
        self, settings: Settings, policies: Policies, *, known: Callable[[], KnownReceivers] | None = None
    ) -> None:
        """`known`: returns the alert receivers in the present gateway.yaml. Raises ConfigError for an invalid database
        URL."""
        self._settings = settings
        self._addresses = Addresses(known or (lambda: settings.known_receivers))
        try:
            self._database = Database(settings.database_url)
        except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
            raise ConfigError(
                [f"ledger.database_url: {error}; for PostgreSQL: pip install 'thriftgate[postgres]'"]
            ) from error
        self._early: dict[str, Row] = {}
        """Team → its latest row from the time before the alerts are loaded."""
        self._notice: Callable[[Iterable[Row]], None] = self._keep
        self._writer = Writer(
            settings.paths.journal,
            self._database,
            on_rows=lambda rows: self._notice(rows),
            interval_s=DRAIN_EVERY_S,
            keep_days=settings.config.ledger.keep_days,
        )
        self._alerts: Alerts | None = None
        self._policies = policies
        self._all_policies = AllPolicies(policies.current)
        self._organisations = {name: one.budget for name, one in settings.config.organisations.items()}
        self._migrated = asyncio.Event()
        self.abandoned = False
        """Whether a thread may still be waiting for an answer of the database."""

    async def open(self) -> None:
        """Migrate the database. If the database is unavailable, `run` migrates it later."""
        try:
            async with asyncio.timeout(MIGRATE_S):
                await self._migrate()
        except (SQLAlchemyError, TimeoutError) as error:
            log.error("the ledger database cannot be reached; until then, the journal on disk grows: %s", error)

    async def _migrate(self) -> None:
        await asyncio.to_thread(self._database.upgrade)
        self._migrated.set()

    async def run(self) -> None:
        """Write the journals to the database until cancelled."""
        while not self._migrated.is_set():
            await asyncio.sleep(RETRY_S)
            await self.open()
        await self._writer.run()

    async def alert(self) -> None:
        """Detect and send alerts until cancelled. Call this after the workers are ready, because the import of an HTTP
        client is slow.
        """
        await self._migrated.wait()
        await asyncio.to_thread(importlib.import_module, "gateway.alerts.alerts")
        from gateway.alerts.alerts import Alerts
        from gateway.alerts.delivery.receivers import Receivers
        from gateway.alerts.detect.weekly_report import references

        receivers = Receivers(addresses=self._addresses)
        alerts = self._alerts = Alerts(
            self._database,
            self._teams,
            organisations=self._organisations,
            reference_of=references(self._settings),
            receivers=receivers,
        )
        try:
            await alerts.open()
            self._notice = alerts.notice
            alerts.notice(self._early.values())
            self._early.clear()
            await alerts.run()
        finally:
            await alerts.aclose()

    def _keep(self, rows: Iterable[Row]) -> None:
        """Keep a row of each team for the alerts. One row is enough, because the first check reads the team's spend
        from the ledger."""
        self._early.update((row.team, row) for row in rows if not row.simulated)

    def figures(self) -> Iterator[Figure]:
        written = self._writer.stats()
        yield "ledger_lag", (), float(written["drained_ago_s"])
        for key, figure in LEDGER.items():
            yield key, (), float(written[figure])
        if self._alerts:
            for outcome, count in self._alerts.stats().items():
                yield "alerts", (outcome,), float(count)
            for (team, window, limit_usd), share in self._alerts.used().items():
                yield "budget_used", (team, window, limit_usd), share
            for one in self._alerts.objectives():
                labels = one.team, one.traffic_class
                if one.budget_left is not None:
                    yield "slo_budget_left", labels, one.budget_left
                if one.burn_rate is not None:
                    yield "slo_burn_rate", labels, one.burn_rate
            for host, workers in self._alerts.undrained().items():
                yield "undrained_workers", (host,), float(workers)

    def processes(self) -> Iterator[tuple[str, int | None]]:
        yield "supervisor", os.getpid()

    def _teams(self) -> Mapping[str, Policy]:
        """The policies of all teams. As long as no policy changes, the same object is returned."""
        if self._all_policies.policies is not self._policies.current:
            self._all_policies = AllPolicies(self._policies.current)
        return self._all_policies

    async def aclose(self) -> None:
        """Write the rest of the journals to the database, if the database is available."""
        try:
            async with asyncio.timeout(LAST_DRAIN_S):
                if self._migrated.is_set():
                    await self._writer.drain_once()
                await self._writer.aclose()
                await asyncio.to_thread(self._database.close)
        except TimeoutError:
            self.abandoned = True
            log.error("the ledger database does not answer; the next start writes the rest of the journal to it")
        except (SQLAlchemyError, OSError) as error:
            self.abandoned = True  # an earlier call may still be waiting for the database
            log.error("the next start writes the rest of the journal to the ledger database: %s", error)
