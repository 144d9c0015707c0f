"""A backend that is found worse than promised is told of once for each time, and only to its own team."""

from __future__ import annotations

from gateway.domain.policy import Policy
from gateway.ledger.store.evidence import Finding, write
from gateway.state.sql.database import Database
from tests.alerts.samples import make_alerts
from tests.fakes.clock import StoppedClock

POLICIES = {team: Policy(team=team) for team in ("search", "chat")}


def finding(number: int, score: float, team: str = "search") -> Finding:
    return Finding(f"r{number}", team, "small", "large", "shadow", "agreement", 0.95, 0.95, score)


async def judge(database: Database, clock: StoppedClock, *scores: float, team: str = "search") -> None:
    clock.now += len(scores)
    findings = [finding(number, score, team) for number, score in enumerate(scores)]
    await database.run(lambda connection: write(connection, findings, clock.time()))


async def test_it_is_told_once_by_however_many_and_again_when_it_happens_again(any_database: Database) -> None:
    clock = StoppedClock()
    workers = [make_alerts(any_database, POLICIES, clock=clock) for _ in range(2)]

    async def alerted_teams() -> list[str]:
        clock.now += 60
        for alerts in workers:
            await alerts.check_once()
        return [one.team for one in await workers[0].sent() if one.kind == "quality" and not one.target]

    await judge(any_database, clock, *[1.0] * 30)
    assert await alerted_teams() == []
    await judge(any_database, clock, *[0.0] * 12)
    assert await alerted_teams() == ["search"]
    await judge(any_database, clock, *[0.0] * 5)
    assert await alerted_teams() == ["search"]
    await judge(any_database, clock, *[1.0] * 120)
    await judge(any_database, clock, *[0.0] * 12)
    assert await alerted_teams() == ["search", "search"]
    await judge(any_database, clock, *[0.0] * 12, team="chat")
    assert sorted(await alerted_teams()) == ["chat", "search", "search"]


async def test_it_says_what_was_measured_and_what_was_promised(any_database: Database) -> None:
    clock = StoppedClock()
    alerts = make_alerts(any_database, POLICIES, clock=clock)
    await judge(any_database, clock, *[0.0] * 20)
    await alerts.check_once()
    (one,) = [each for each in await alerts.sent() if each.kind == "quality"]
    assert (one.payload["backend"], one.payload["measured"], one.payload["target"]) == ("small", 0.0, 0.95)
    assert one.payload["high"] < 0.2
    assert "95% was promised" in one.payload["text"]
    assert one.severity == "warning"
