"""When an alert is due, and that its words are plain."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.alerts.alert import Alert
from gateway.alerts.detect.thresholds import BudgetWindow, due, due_ahead
from gateway.domain.money.budget import Budget
from gateway.domain.money.windows import window_bounds
from gateway.ledger.reports.forecast import Forecast

NOW = datetime(2026, 1, 16, 12, tzinfo=UTC).timestamp()  # half of January
USD = 10**12


def alerts(spent_usd: float, now: float = NOW, **facts: Any) -> list[Alert]:
    budget = Budget(**{"limit_usd": "500", **facts})
    bounds = window_bounds(budget.window, budget.timezone, now)
    return due(BudgetWindow("search", budget), int(spent_usd * USD), bounds, now)


def thresholds(found: list[Alert]) -> list[str]:
    return [alert.payload["threshold"] for alert in found]


@pytest.mark.parametrize(
    ("spent", "expected"),
    [(0, []), (249.99, []), (250, ["50%"]), (399, ["50%"]), (400, ["50%", "80%"]), (700, ["50%", "80%", "100%"])],
)
def test_every_threshold_reached_is_due(spent: float, expected: list[str]) -> None:
    assert thresholds(alerts(spent)) == expected


def test_a_threshold_is_exact_to_the_pico_dollar() -> None:
    budget = Budget(limit_usd="0.000000000010", alerts=("70%",))  # type: ignore[arg-type]
    bounds = window_bounds("month", "UTC", NOW)
    assert due(BudgetWindow("t", budget), 6, bounds, NOW) == []
    assert len(due(BudgetWindow("t", budget), 7, bounds, NOW)) == 1


def test_the_forecast_is_due_when_the_limit_will_more_likely_than_not_be_reached() -> None:
    account = BudgetWindow("search", Budget(limit_usd="500", alerts=["forecast"]))  # type: ignore[arg-type]
    bounds = window_bounds("month", "UTC", NOW)

    def ahead(spent_usd: int, at: float | None) -> list[Alert]:
        found = Forecast(400 * USD, 510 * USD, 600 * USD, NOW + 86400, at, None)
        return due_ahead(account, spent_usd * USD, found, bounds, NOW)

    assert ahead(300, None) == []
    assert ahead(500, NOW) == []  # by then the limit itself speaks
    assert due_ahead(account, 0, None, bounds, NOW) == []
    (alert,) = ahead(300, NOW + 2 * 86400)
    assert (alert.kind, alert.severity, alert.payload["threshold"]) == ("forecast", "warning", "forecast")
    assert alert.payload["forecast"] == {
        "total_usd_low": "400",
        "total_usd": "510",
        "total_usd_high": "600",
        "exhausted_at_low": "2026-01-17T12:00:00Z",
        "exhausted_at": "2026-01-18T12:00:00Z",
        "exhausted_at_high": None,
    }
    assert alert.payload["text"] == (
        "Team search has spent 300.00 USD of its monthly budget of 500 USD, which runs until 2026-02-01 00:00 (UTC); "
        "at this pace it is used up by 2026-01-18 12:00 (UTC) (between 2026-01-17 12:00 (UTC) and not before its end, "
        "four times in five), and 510.00 USD would be spent at the window's end (between 400.00 USD and 600.00 USD)."
    )


def test_a_budget_of_tokens_speaks_of_tokens() -> None:
    budget = Budget(limit_tokens=1000, window="day", alerts=(0.5,))
    (alert,) = due(BudgetWindow("search", budget), 612, window_bounds("day", "UTC", NOW), NOW)
    assert (alert.payload["spent_tokens"], alert.payload["limit_tokens"]) == (612, 1000)
    assert "spent_usd" not in alert.payload
    assert alert.payload["text"].startswith(
        "Team search has spent 612 tokens, 50% or more of its daily budget of 1000 tokens, which runs"
    )


@pytest.mark.parametrize(
    ("facts", "account", "whose"),
    [
        ({}, {}, "Team search has spent"),
        ({"per": "organisation"}, {"team": "organisation acme"}, "Organisation acme has spent"),
        ({"per": "key"}, {"subject": "key_1"}, "Key key_1 of team search has spent"),
        ({"per": "end_user"}, {"subjects": ["eu_1"]}, "Of team search end user eu_1 has spent"),
        ({"per": "session"}, {"subjects": ["s1", "s2"]}, "Of team search each of session s1, s2 has spent"),
        (
            {"per": "end_user"},
            {"subjects": [*"abcdefg"]},
            "Of team search each of end user a, b, c, d, e and 2 more has",
        ),
    ],
)
def test_it_says_whose_budget_it_is(facts: dict[str, Any], account: dict[str, Any], whose: str) -> None:
    budget = Budget(limit_usd="10", alerts=(0.5,), **facts)  # type: ignore[arg-type]
    (alert,) = due(
        BudgetWindow(**{"team": "search", "budget": budget, **account}),
        6 * USD,
        window_bounds("month", "UTC", NOW),
        NOW,
    )
    assert alert.payload["text"].startswith(whose)


def test_the_higher_the_threshold_the_graver() -> None:
    assert [alert.severity for alert in alerts(700, alerts=["50%", "79%", "80%", "99%", "100%"])] == [
        *("info", "info", "warning", "warning", "critical")
    ]


def test_the_payload_says_it_in_fields_and_in_plain_words() -> None:
    (alert,) = alerts(412.5, alerts=["80%"], timezone="Europe/Madrid")
    assert alert.payload == {
        "team": "search",
        "kind": "threshold",
        "severity": "warning",
        "budget": "monthly budget of 500 USD",
        "window": "month",
        "window_start": "2025-12-31T23:00:00Z",
        "window_end": "2026-01-31T23:00:00Z",
        "threshold": "80%",
        "spent_usd": "412.5",
        "limit_usd": "500",
        "at": "2026-01-16T12:00:00Z",
        "text": "Team search has spent 412.50 USD, 80% or more of its monthly budget of 500 USD, "
        "which runs until 2026-02-01 00:00 (Europe/Madrid).",
    }


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"alerts": ["100%"]}, "has used up its monthly budget of 500 USD: 600.00 USD are spent. Requests that cost"),
        ({"alerts": ["100%"], "on_exhausted": "downgrade"}, "Only answers that cost nothing are served until 2026-02"),
        ({"alerts": ["100%"], "window": "total"}, "refused until the limit is raised."),
        ({"alerts": ["50%"], "limit_usd": "0.0000004", "spent": 0.00000025}, "has spent 0.00000025 USD, 50% or more"),
        ({"alerts": ["100%"], "hard": False}, "600.00 USD are spent. The limit is not enforced."),
        ({"alerts": ["100%"], "name": "pilot"}, "has used up its monthly budget 'pilot' of 500 USD:"),
    ],
)
def test_each_kind_of_alert_has_its_sentence(facts: dict[str, Any], words: str) -> None:
    (alert,) = alerts(facts.pop("spent", 600), **facts)
    assert words in alert.payload["text"]


def test_ids_differ_by_team_window_threshold_and_budget_and_by_nothing_else() -> None:
    same = {alert.id for spent in (400, 450) for alert in alerts(spent, alerts=["80%"])}
    assert len(same) == 1
    others = [
        alerts(400, alerts=["50%"]),
        alerts(400, NOW + 31 * 86400, alerts=["80%"]),
        alerts(400, alerts=["80%"], limit_usd="499"),
        alerts(400, alerts=["80%"], timezone="Europe/Madrid"),
        alerts(400, alerts=["80%"], window="week"),
        alerts(400, alerts=["80%"], name="pilot"),
        alerts(400, alerts=["80%"], per="key"),
    ]
    ids = same | {alert.id for found in others for alert in found}
    assert len(ids) == 8


def test_ids_fit_their_column() -> None:
    budget = Budget(limit_usd="123456789.123456789", alerts=("12.3456789%",), timezone="America/Argentina/Rio_Gallegos")  # type: ignore[arg-type]
    (alert,) = due(BudgetWindow("t" * 64, budget), 10**30, window_bounds("month", budget.timezone, NOW), NOW)
    assert len(alert.addressed("email:env:" + "X" * 96)) <= 160
