"""The alert about an objective for quality: once for each state and window, and only for teams with an objective."""

from __future__ import annotations

import asyncio

import pytest

from gateway.domain.policy import Policy
from gateway.ledger.store.evidence import Finding, write
from gateway.state.sql.database import Database
from tests.alerts.samples import make_alerts
from tests.fakes.clock import StoppedClock
from tests.ledger.booked import book, row


async def judged(database: Database, clock: StoppedClock, team: str, *scores: float) -> None:
    now = clock.time()
    names = [f"{team}-{now}-{number}" for number in range(len(scores))]
    facts = {"team": team, "backend": "small", "at": now, "traffic_class": "es/text/opening"}
    rows = [row(id=f"{name}-1", request_id=name, **facts) for name in names]
    await asyncio.to_thread(book, database, *rows)
    findings = [
        Finding(name, team, "small", "large", "shadow", "agreement", 0.95, 0.5, score)
        for name, score in zip(names, scores, strict=True)
    ]
    await database.run(lambda connection: write(connection, findings, now))


async def test_it_is_sent_once_for_each_state_with_the_error_budget(any_database: Database) -> None:
    clock = StoppedClock()
    policies = {
        "search": Policy.model_validate({"team": "search", "slo": "90%"}),
        "chat": Policy(team="chat"),
    }
    workers = [make_alerts(any_database, policies, clock=clock) for _ in range(2)]

    async def sent() -> list[tuple[str, str, str]]:
        clock.now += 61
        for alerts in workers:
            await alerts.check_once()
        found = [one for one in await workers[0].sent() if one.kind == "slo" and not one.target]
        return sorted((one.team, one.payload["class"], one.payload["state"]) for one in found)

    await judged(any_database, clock, "search", *[1.0] * 30)
    await judged(any_database, clock, "chat", *[0.0] * 30)
    assert await sent() == []
    await judged(any_database, clock, "search", *[0.0] * 15)
    missed = [("search", "all", "missed"), ("search", "es/text/opening", "missed")]
    assert await sent() == missed
    assert await sent() == missed
    (one, _) = [each for each in await workers[0].sent() if each.kind == "slo" and not each.target]
    assert one.severity == "critical"
    assert one.payload["quality"] == pytest.approx(2 / 3, abs=1e-3)
    assert "The error budget is spent." in one.payload["text"]
    (all_traffic, spanish) = workers[0].objectives()
    assert (all_traffic.traffic_class, spanish.traffic_class) == ("all", "es/text/opening")
