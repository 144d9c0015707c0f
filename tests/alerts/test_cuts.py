"""Where leaving out old outputs makes sessions worse, it is switched off for the team, and comes back."""

from __future__ import annotations

from random import Random
from typing import Any

from gateway.domain.holdout import is_held_out
from gateway.domain.policy import Policy
from gateway.learning.cut_switch import CutSwitch
from gateway.ledger.store.cut_pauses import OFF_S
from gateway.state.sql.database import Database
from tests.alerts.samples import book, make_alerts, row
from tests.fakes.clock import StoppedClock

PRICES = "input=3000000 output=15000000 cached_input=300000 cache_write_5m=3750000 cache_write_1h=6000000"
HALF = {"context": {"holdout": "50%"}}
DAY_S = 86400.0


def policies(**context: Any) -> dict[str, Policy]:
    return {
        "default": Policy.model_validate({"team": "default", **HALF}),
        "search": Policy.model_validate({"team": "search", "context": {"holdout": "50%", **context}}),
    }


async def spend(database: Database, clock: StoppedClock, dearer: float, team: str = "search", first: int = 0) -> None:
    """80 sessions of 12 requests. Those that are not held out cost `dearer` times as much."""
    random, rows = Random(1), []
    for name in (f"s{number}" for number in range(first, first + 80)):
        usd = 0.01 * random.lognormvariate(0, 0.1) * (1 if is_held_out(team, name, 0.5) else dearer)
        facts = {"session": name, "model": "claude-opus-4-6", "cached_tokens": 20_000, "cache_write_5m_tokens": 500}
        for each in range(12):
            one = row(0, f"{usd:.9f}", clock, team, **facts, prices=PRICES, trimmed_tokens=100, backend="c")
            id = f"{team}{name}-{each}"
            rows.append(one._replace(id=id, request_id=id, at=clock.now - DAY_S + each))
    await book(database, *rows)


async def alerted(database: Database, clock: StoppedClock, of: dict[str, Policy]) -> list[str]:
    alerts = make_alerts(database, of, clock=clock)
    await alerts.check_once()
    return [one.team for one in await alerts.sent() if one.kind == "context" and not one.target]


async def test_a_team_whose_sessions_became_dearer_gets_one_alert_and_no_cuts_for_two_weeks(
    any_database: Database,
) -> None:
    clock = StoppedClock()
    switch = CutSwitch(any_database, clock=clock)
    await spend(any_database, clock, 2.0)
    assert not switch.is_off("search")
    assert await alerted(any_database, clock, policies()) == ["search"]
    await switch.refresh()
    assert switch.is_off("search")
    assert not switch.is_off("chat")
    assert switch.stats() == {"cuts_off": 1}
    clock.now += DAY_S
    assert await alerted(any_database, clock, policies()) == ["search"]
    clock.now += OFF_S
    assert not switch.is_off("search")
    await switch.refresh()
    assert not switch.is_off("search")
    assert await alerted(any_database, clock, policies()) == ["search"]  # only sessions after the pause are compared
    await spend(any_database, clock, 2.0, first=80)
    assert await alerted(any_database, clock, policies()) == ["search", "search"]


async def test_what_saves_or_is_kept_by_the_policy_is_not_switched_off(any_database: Database) -> None:
    clock = StoppedClock()
    await spend(any_database, clock, 0.7)
    assert await alerted(any_database, clock, policies()) == []
    await spend(any_database, clock, 3.0, first=80)
    assert await alerted(any_database, clock, policies(old_outputs="keep")) == []
    assert await alerted(any_database, clock, policies(holdout=0)) == []


async def test_a_team_under_the_default_policy_is_checked_too(any_database: Database) -> None:
    clock = StoppedClock()
    await spend(any_database, clock, 2.0, team="chat")
    alerts = make_alerts(any_database, policies(), clock=clock)
    alerts.notice([row(0, "1", clock, "chat")])
    await alerts.check_once()
    assert [(one.team, one.kind) for one in await alerts.sent()] == [("chat", "context")]
    assert "switched off for 14 days" in (await alerts.sent())[0].payload["text"]
