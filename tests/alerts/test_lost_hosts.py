"""A host that budgets hold money for is told of once for each team, with what to do about it."""

from __future__ import annotations

from decimal import Decimal

import pytest

from gateway.domain.money.budget import Budget
from gateway.domain.policy import Policy
from gateway.state.leases import orphaned_holds
from gateway.state.leases.orphaned_holds import OrphanedHold
from gateway.state.sql.database import Database
from tests.alerts.samples import make_alerts
from tests.fakes.clock import StoppedClock

NANO = 10**9
POLICIES = {team: Policy(team=team) for team in ("search", "chat")}
ACME = {"acme": [Budget(limit_usd=Decimal(900))]}


def hold(tag: str, units: int, since: float, worker: str = "0bad-7f-0-aa@far") -> OrphanedHold:
    level = "organisation" if tag.startswith("organisation ") else "team"
    counter = f"tg:{{{tag}}}:lease:budget:{level}:usd:0:month:UTC:1798761600"
    return OrphanedHold(worker, counter, tag, units, 100 * NANO, since)


async def record(database: Database, *holds: OrphanedHold) -> None:
    await database.run(lambda connection: orphaned_holds.record(connection, holds))


async def test_it_is_told_once_by_however_many_gateways(any_database: Database) -> None:
    clock = StoppedClock()
    workers = [make_alerts(any_database, POLICIES, clock=clock, organisations=ACME) for _ in range(2)]

    async def alerted_teams() -> list[str]:
        for alerts in workers:
            await alerts.check_once()
        return sorted(one.team for one in await workers[0].sent() if one.kind == "lost_host" and not one.target)

    await record(any_database, *(hold(tag, NANO, clock.now) for tag in ("search", "organisation acme", "other")))
    assert await alerted_teams() == []  # it may just be restarting
    clock.now += 40
    assert await alerted_teams() == ["organisation acme", "search"]
    await record(any_database, hold("search", NANO, clock.now, "0bad-80-0-aa@far"))
    clock.now += 40
    assert await alerted_teams() == ["organisation acme", "search"]
    assert workers[0].undrained() == {"far": 2}
    await any_database.run(lambda connection: orphaned_holds.release(connection, "far", "me"))
    await record(any_database, hold("search", NANO, clock.now, "0bad-81-0-aa@far"))
    clock.now += 40
    assert await alerted_teams() == ["organisation acme", "search", "search"]
    assert workers[0].undrained() == {"far": 1}


@pytest.mark.parametrize(("units", "severity"), [(NANO, "warning"), (10 * NANO, "critical")])
async def test_it_says_how_much_of_which_budget_and_what_to_do(database: Database, units: int, severity: str) -> None:
    clock = StoppedClock()
    alerts = make_alerts(database, POLICIES, clock=clock)
    await record(database, hold("search", units, clock.now - 60))
    await alerts.check_once()
    (one,) = [each for each in await alerts.sent() if each.kind == "lost_host"]
    assert (one.severity, one.payload["host"], one.payload["workers"]) == (severity, "far", ["0bad-7f-0-aa@far"])
    amount = f"{units // NANO}.0000 USD of 100 USD"
    assert one.payload["held"] == [{"budget": "team search, month from 2027-01-01", "amount": amount}]
    assert f"{amount} (team search, month from 2027-01-01)" in one.payload["text"]
    assert "`thriftgate ledger release far`" in one.payload["text"]
