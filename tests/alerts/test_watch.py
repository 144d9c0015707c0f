"""Each kind of budget is watched as it counts, and what is odd is found on a real ledger."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from gateway.alerts.delivery.deliveries import DeliveryResult
from gateway.domain.money.budget import Budget
from gateway.domain.policy import AlertsPolicy, Policy
from gateway.state.sql.database import Database
from tests.alerts.samples import book, make_alerts, row
from tests.fakes.clock import StoppedClock

HOUR_S = 3600


def budget(**facts: Any) -> Policy:
    known = {"window": "day", "alerts": (0.5, 1.0), **facts}
    return Policy(team="search", budget=(Budget(**known),))  # type: ignore[arg-type]


async def raised(
    database: Database, policies: dict[str, Policy], clock: StoppedClock, **facts: Any
) -> list[DeliveryResult]:
    """What a new process writes down."""
    alerts = make_alerts(database, policies, clock=clock, **facts)
    await alerts.check_once()
    return sorted((one for one in await alerts.sent(limit=1000) if not one.target), key=lambda one: one.id)


async def test_a_key_is_told_of_for_itself(any_database: Database) -> None:
    clock = StoppedClock()
    policy = budget(limit_usd=Decimal(10), per="key")
    await book(any_database, row(1, "6", clock, key_id="ann"), row(2, "4", clock, key_id="bob"))
    assert [one.payload["key"] for one in await raised(any_database, {"search": policy}, clock)] == ["ann"]
    await book(any_database, row(3, "7", clock, key_id="bob"))
    found = await raised(any_database, {"search": policy}, clock)
    heard = sorted((one.payload["key"], one.payload["threshold"]) for one in found)
    assert heard == [("ann", "50%"), ("bob", "100%"), ("bob", "50%")]


async def test_ten_thousand_end_users_who_come_as_far_are_one_alert(any_database: Database) -> None:
    clock = StoppedClock()
    policy = budget(limit_usd=Decimal(1), per="end_user")
    users = [row(number, "0.6", clock, end_user=f"eu_{number:05}") for number in range(10_000)]
    await book(any_database, *users, row(-1, "1", clock, end_user="eu_x"), row(-2, "5", clock))
    half, whole = sorted(
        await raised(any_database, {"search": policy}, clock), key=lambda one: -len(one.payload["text"])
    )
    assert (half.payload["threshold"], half.payload["end_users"][:2]) == ("50%", ["eu_x", "eu_00000"])
    assert "each of end user eu_x, eu_00000, eu_00001, eu_00002, eu_00003 and 9996 more" in half.payload["text"]
    assert (whole.payload["threshold"], whole.payload["end_users"]) == ("100%", ["eu_x"])


async def test_sessions_that_come_as_far_are_one_alert(any_database: Database) -> None:
    clock = StoppedClock()
    policy = budget(limit_usd=Decimal(1), per="session")
    await book(any_database, row(1, "0.6", clock, session="a"), row(2, "0.7", clock, session="b"), row(3, "9", clock))
    (half,) = await raised(any_database, {"search": policy}, clock)
    assert (half.payload["threshold"], half.payload["sessions"]) == ("50%", ["b", "a"])
    assert "budget of 1 USD per session" in half.payload["text"]


async def test_tokens_count_where_they_are_not_free(any_database: Database) -> None:
    clock = StoppedClock()
    policy = budget(limit_tokens=1000)
    tokens = {"input_tokens": 100, "cached_tokens": 100, "output_tokens": 100, "reasoning_tokens": 100}
    await book(any_database, row(1, "1", clock, **tokens), row(2, "0", clock, **tokens))
    assert await raised(any_database, {"search": policy}, clock) == []
    await book(any_database, row(3, "0", clock, **{**tokens, "cost_pico": None}))
    alert = next(one for one in await raised(any_database, {"search": policy}, clock) if one.kind == "threshold")
    assert (alert.payload["spent_tokens"], alert.payload["threshold"]) == (800, "50%")


async def test_an_organisation_is_told_of_once_whichever_of_its_teams_spends(any_database: Database) -> None:
    clock = StoppedClock()
    above = {"acme": [Budget(limit_usd=Decimal(10), per="organisation", window="day", alerts=(0.5,))], "empty": []}
    policies = {"search": Policy(team="search", organisation="acme")}
    alerts = make_alerts(any_database, policies, clock=clock, organisations=above)
    assert await alerts.check_once() == 0
    spent = [row(1, "3", clock), row(2, "3", clock, team="chat"), row(3, "9", clock, organisation="other")]
    await book(any_database, *spent)
    alerts.notice(spent)
    assert await alerts.check_once() == 1
    (alert,) = await alerts.sent()
    assert alert.team == "organisation acme"
    assert alert.payload["text"].startswith("Organisation acme has spent 6.00 USD, 50% or more of its daily budget")
    assert await make_alerts(any_database, policies, clock=clock, organisations=above).check_once() == 0
    assert alerts.used()["organisation acme", "day per organisation", "10"] == 0.6


async def test_the_forecast_is_told_once_before_the_limit_is_reached(any_database: Database) -> None:
    clock = StoppedClock()
    day = int(clock.now // 86400)
    hours = [
        row(number, "1", clock, at=float((day - 30) * 86400 + number * HOUR_S + 60)) for number in range(30 * 24 + 6)
    ]
    await book(any_database, *hours)
    clock.now = day * 86400 + 6.0 * HOUR_S
    calm, short = (budget(limit_usd=Decimal(limit), alerts=("forecast",)) for limit in (30, 20))
    assert await raised(any_database, {"search": calm}, clock) == []
    (alert,) = await raised(any_database, {"search": short}, clock)
    assert (alert.kind, alert.payload["forecast"]["total_usd"], alert.payload["spent_usd"]) == ("forecast", "24", "6")
    assert alert.payload["forecast"]["exhausted_at"] == "2027-01-15T20:00:00Z"
    clock.now += 600
    assert len(await raised(any_database, {"search": short}, clock)) == 1


async def test_what_is_odd_is_found_on_the_ledger(any_database: Database) -> None:
    clock = StoppedClock()
    past = [
        row(number, "1", clock, at=clock.now - (number + 2) * HOUR_S, backend="gpt", input_tokens=9)
        for number in range(48)
    ]
    await book(any_database, *past)
    policies = {"search": Policy(team="search")}
    alerts = make_alerts(any_database, policies, clock=clock)
    assert await alerts.check_once() == 0
    odd = [
        row(100, "50", clock, backend="gpt", input_tokens=9),
        row(101, "0", clock, backend="gpt", input_tokens=9),
        row(102, "0", clock, backend="new", input_tokens=9, cost_pico=None),
        row(103, "0", clock, backend="new", input_tokens=9, cost_pico=None, simulated=True),
    ]
    await book(any_database, *odd)
    alerts.notice(odd)
    assert await alerts.check_once() == 0  # not so soon again
    clock.now += 60
    alerts.notice(odd)
    assert await alerts.check_once() == 3
    found = {one.kind: one.payload for one in await alerts.sent()}
    assert set(found) == {"spend_rate", "zero_cost", "unpriced"}
    assert (found["zero_cost"]["attempts"], found["unpriced"]["attempts"]) == ({"gpt": 1}, {"new": 1})
    assert found["spend_rate"]["spent_usd"] == "50"
    assert len(await raised(any_database, policies, clock)) == 3  # and a new process tells nothing twice
    quiet = Policy(team="search", alerts=AlertsPolicy(anomalies=False))
    clock.now += 86400
    assert await make_alerts(any_database, {"search": quiet}, clock=clock).check_once() == 0


async def test_a_cache_that_went_cold_is_found_on_the_ledger(database: Database) -> None:
    clock = StoppedClock()
    rows, number = [], 0
    for hour in range(30):
        for answer in range(50):
            number += 1
            hit = {"attempt": 0, "cache": "exact"} if answer % 2 and hour else {"attempt": 1, "cache": "miss"}
            rows.append(row(number, "0", clock, at=clock.now - hour * HOUR_S - 1, **hit))
    await book(database, *(one for one in rows if one.at < clock.now - HOUR_S - 2), *rows[:50])
    (alert,) = await raised(database, {"search": Policy(team="search")}, clock)
    assert (alert.kind, alert.severity, alert.payload["hit_rate"]) == ("hit_rate", "info", 0.0)
