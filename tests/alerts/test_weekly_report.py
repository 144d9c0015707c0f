"""A team's report of last week is sent once, after the week, with the figures of the ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.alerts.alerts import Alerts
from gateway.alerts.detect.weekly_report import DELAY_S, References, references
from gateway.domain.backend import Backend
from gateway.domain.money.budget import Budget
from gateway.domain.money.price import Price
from gateway.domain.notify import Notify
from gateway.domain.policy import AlertsPolicy, Policy
from gateway.settings.gateway import load_settings
from gateway.state.sql.database import Database
from tests.alerts.samples import Receiver, book, make_receivers, row
from tests.fakes.clock import StoppedClock

DAY_S = 86_400.0
MONDAY = 1_799_625_600.0 + 7 * DAY_S
"""2027-01-18, 00:00 UTC."""
TO_HOOK = (Notify.model_validate({"webhook": "env:HOOK"}),)
POLICY = Policy(
    team="search",
    budget=(Budget.model_validate({"limit_usd": "100"}),),
    alerts=AlertsPolicy(weekly_report=TO_HOOK, notify=(Notify.model_validate({"webhook": "env:OTHER"}),)),
)
DEAR = Backend.model_validate({"name": "dear", "kind": "openai", "base_url": "http://127.0.0.1:9/v1", "model": "dear"})
DEAR_PRICE = Price(1_000_000, 1_000_000)


def make(
    database: Database,
    clock: StoppedClock,
    *policies: Policy,
    receiver: Receiver | None = None,
    reference_of: References = lambda policy: None,
) -> Alerts:
    receivers = make_receivers(lambda reference: receiver.url if receiver and reference == "env:HOOK" else "")
    known = {policy.team: policy for policy in policies or (POLICY,)}
    return Alerts(database, lambda: known, reference_of=reference_of, receivers=receivers, clock=clock)


async def reports(alerts: Alerts) -> list[dict[str, object]]:
    return [one.payload for one in await alerts.sent(limit=1000) if one.kind == "report" and not one.target]


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock(MONDAY + DELAY_S)


async def spend(database: Database, clock: StoppedClock) -> None:
    facts = {"model": "small-model", "backend": "small", "outcome": "ok", "dialect": "openai_chat"}
    days = range(1, 22)  # from the day before until three weeks before
    await book(database, *(row(day, "2", clock, at=MONDAY - day * DAY_S, input_tokens=10**7, **facts) for day in days))
    await book(database, row(100, "50", clock, at=MONDAY + 60, **facts))  # the new week's


async def test_a_report_has_spend_savings_and_forecast_and_goes_only_to_its_receivers(
    any_database: Database, clock: StoppedClock, receiver: Receiver
) -> None:
    await spend(any_database, clock)
    alerts = make(any_database, clock, receiver=receiver, reference_of=lambda policy: (DEAR, DEAR_PRICE))
    await alerts.open()
    await alerts.check_once()
    (payload,) = await reports(alerts)
    assert (payload["team"], payload["kind"], payload["severity"]) == ("search", "report", "info")
    assert (payload["week_start"], payload["week_end"]) == ("2027-01-11T00:00:00Z", "2027-01-18T00:00:00Z")
    assert (payload["requests"], payload["spent_usd"], payload["spent_before_usd"]) == (7, "14", "14")
    assert payload["models"] == {"small-model": "14"}
    assert payload["saved_usd"] == "56"  # 7 requests with 10 million tokens at 1 USD a million, less 14 USD
    assert payload["month_usd"] == "84"  # 17 days at 2 USD, and the new week's 50 USD
    low, middle, high = (float(str(payload[f"month_forecast_usd{which}"])) for which in ("_low", "", "_high"))
    assert 84 < low <= middle <= high
    assert payload["budgets"] == [{"budget": "month", "subject": None, "used": 0.84}]
    text = str(payload["text"])
    assert text.startswith(
        "Team search spent 14.00 USD on 7 requests from 2027-01-11 to 2027-01-17 (week before: 14.00"
    )
    assert "With dear for everything: 70.00 USD; saved: 56.00 USD." in text
    assert "This month so far: 84.00 USD; forecast: " in text
    assert text.endswith("Budgets used: month 84%.")
    await alerts.deliver_once()
    sent = [one for one in await alerts.sent(limit=1000) if one.kind == "report" and one.target]
    assert [(one.target, one.delivered_at) for one in sent] == [("env:HOOK", clock.now)]
    assert [body["text"] for body, _ in receiver.got] == [text]
    await alerts.aclose()


async def test_it_is_made_once_by_all_processes_and_each_week_anew(database: Database, clock: StoppedClock) -> None:
    await spend(database, clock)
    clock.now = MONDAY + DELAY_S - 1
    alerts = make(database, clock)
    await alerts.check_once()
    assert await reports(alerts) == []
    clock.now += 60
    await alerts.check_once()
    await make(database, clock).check_once()  # another process, or the same after a restart
    assert len(await reports(alerts)) == 1
    clock.now += 3 * DAY_S
    await alerts.check_once()
    assert len(await reports(alerts)) == 1
    clock.now = MONDAY + 7 * DAY_S + DELAY_S
    await alerts.check_once()
    assert sorted(str(one["week_start"]) for one in await reports(alerts)) == [
        "2027-01-11T00:00:00Z",
        "2027-01-18T00:00:00Z",
    ]


async def test_teams_without_receivers_or_requests_get_none(database: Database, clock: StoppedClock) -> None:
    await spend(database, clock)
    quiet = POLICY.model_copy(update={"team": "quiet"})
    alerts = make(database, clock, Policy(team="search", budget=POLICY.budget), quiet)
    await alerts.check_once()
    assert await reports(alerts) == []


async def test_without_a_reference_price_it_claims_no_savings(database: Database, clock: StoppedClock) -> None:
    await spend(database, clock)
    alerts = make(database, clock)
    await alerts.check_once()
    (payload,) = await reports(alerts)
    assert payload["saved_usd"] is None
    assert "saved" not in str(payload["text"])


def test_the_reference_is_that_of_gateway_yaml_at_todays_price(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text(
        "backends:\n"
        '  - {name: dear, kind: openai, base_url: "http://127.0.0.1:9/v1", model: m, price: {input: 4, output: 8}}\n'
        '  - {name: cheap, kind: openai, base_url: "http://127.0.0.1:9/v1", model: m, price: {input: 1, output: 2}}\n'
    )
    settings = load_settings(config, tmp_path / "data", keys=False)
    found = references(settings)(POLICY)
    assert found is not None
    assert (found[0].name, found[1].output) == ("dear", 8_000_000)
    settings.paths.data.mkdir()
    settings.paths.prices.write_text("{")
    assert references(settings)(POLICY) is None
    assert "the weekly report of team search has no savings" in caplog.text
