"""Limits the spend for comparisons, per team and in total. Before each call, its maximum cost is held in SQL."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, select, text, update

from gateway.domain.money.windows import iso, window_bounds
from gateway.domain.policy import TrialsPolicy
from gateway.domain.protocols import Clock
from gateway.domain.tenant import Tenant
from gateway.domain.units import pico_to_usd, usd_to_pico
from gateway.settings.gateway import TrialsSettings
from gateway.state.sql.database import Database
from gateway.state.sql.tables import shadow_spend

ALL = ""
"""Value of the column `team` in rows that count the spend of all teams."""
_LATEST = 200


@dataclass(frozen=True, slots=True)
class CapSpent:
    """The spend for comparisons in one window, in pico-dollars, of one team or of all teams."""

    period: str
    team: str
    spent_pico: int
    held_pico: int
    calls: int


def spent(connection: Connection) -> list[CapSpent]:
    """Read the spend in the latest windows, newest window first."""
    c = shadow_spend.c
    query = (
        select(c.period, c.team, c.spent_pico, c.held_pico, c.calls).order_by(c.period.desc(), c.team).limit(_LATEST)
    )
    return [CapSpent(*row) for row in connection.execute(query)]


class SpendCap:
    """Holds money for comparisons, up to a limit per team and a limit for all teams. Several processes may share one
    database. If a process dies, the money that it held stays held until the window ends, so that the limits are
    never exceeded.
    """

    def __init__(self, database: Database, settings: TrialsSettings, *, clock: Clock = time) -> None:
        self._database, self._settings, self._clock = database, settings, clock
        self._spent_pico = 0
        """Spend of this process."""

    def stats(self) -> dict[str, int | float | str]:
        return {"spent_usd": float(pico_to_usd(self._spent_pico)), "cap_usd": float(self._settings.cap_usd)}

    async def hold(self, tenant: Tenant, pico: int) -> str | None:
        """Hold `pico` pico-dollars. Returns the window in which they are held; None if a limit would be exceeded.
        Raises SQLAlchemyError."""
        caps = self._caps(tenant.team, tenant.policy.trials)
        return await self._database.run(lambda connection: self._hold(connection, caps, pico))

    def _caps(self, team: str, policy: TrialsPolicy) -> dict[str, int]:
        return {ALL: usd_to_pico(self._settings.cap_usd), team: usd_to_pico(policy.cap_usd)}

    def _hold(self, connection: Connection, caps: Mapping[str, int], pico: int) -> str | None:
        period = self._period()
        c = shadow_spend.c
        for team in sorted(caps):  # a fixed order of locks prevents deadlocks
            self._begin(connection, period, team)
            row = connection.execute(
                select(c.held_pico, c.spent_pico).where(c.period == period, c.team == team).with_for_update()
            ).one()
            if row.held_pico + row.spent_pico + pico > caps[team]:
                return None
        connection.execute(
            update(shadow_spend)
            .where(c.period == period, c.team.in_(list(caps)))
            .values(held_pico=c.held_pico + pico, calls=c.calls + 1)
        )
        return period

    def _begin(self, connection: Connection, period: str, team: str) -> None:
        """Insert the row of the window. Two processes may do this at the same time."""
        connection.execute(
            text(
                "INSERT INTO shadow_spend (period, team, held_pico, spent_pico, calls) "
                "VALUES (:period, :team, 0, 0, 0) ON CONFLICT (period, team) DO NOTHING"
            ),
            {"period": period, "team": team},
        )

    async def settle(self, tenant: Tenant, period: str, held_pico: int, cost_pico: int) -> None:
        """Replace the money that is held in `period` by the actual cost. Raises SQLAlchemyError."""
        self._spent_pico += cost_pico
        c = shadow_spend.c
        await self._database.run(
            lambda connection: connection.execute(
                update(shadow_spend)
                .where(c.period == period, c.team.in_([ALL, tenant.team]))
                .values(held_pico=c.held_pico - held_pico, spent_pico=c.spent_pico + cost_pico)
            )
        )

    def _period(self) -> str:
        start, _ = window_bounds(self._settings.window, "UTC", self._clock.time())
        return f"{self._settings.window}/{iso(start)}"
