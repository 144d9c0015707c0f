"""When an alert is due, and that its words are plain."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.domain.policy import Budget
from gateway.domain.windows import window_bounds
from gateway.ledger.thresholds import Alert, due, forecast_pico

NOW = datetime(2026, 1, 16, 12, tzinfo=UTC).timestamp()  # half of January
USD = 10**12


def alerts(spent_usd: float, now: float = NOW, **facts: Any) -> list[Alert]:
    budget = Budget(**{"limit_usd": "500", **facts})
    return due("search", budget, int(spent_usd * USD), window_bounds(budget.window, budget.timezone, now), now)


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
    assert due("t", budget, 6, bounds, NOW) == []
    assert len(due("t", budget, 7, bounds, NOW)) == 1


def test_the_forecast_is_due_when_the_pace_leads_beyond_the_limit() -> None:
    assert thresholds(alerts(249, alerts=["forecast"])) == []
    assert thresholds(alerts(251, alerts=["forecast"])) == ["forecast"]
    assert thresholds(alerts(500, alerts=["forecast"])) == []  # by then the limit itself speaks


def test_there_is_no_forecast_early_in_a_window_nor_for_a_total() -> None:
    early = datetime(2026, 1, 2, tzinfo=UTC).timestamp()
    assert alerts(400, early, alerts=["forecast"]) == []
    assert alerts(400, alerts=["forecast"], window="total") == []
    assert forecast_pico(10, (0.0, 100.0), 100.0) is None
    assert forecast_pico(10, (0.0, 100.0), 50.0) == 20


def test_the_payload_says_it_in_fields_and_in_plain_words() -> None:
    (alert,) = alerts(412.5, alerts=["80%"], timezone="Europe/Madrid")
    assert alert.payload == {
        "team": "search",
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
        ({"alerts": ["forecast"], "spent": 300}, "at this pace it will have spent 600.00 USD by then"),
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
    ]
    ids = same | {alert.id for found in others for alert in found}
    assert len(ids) == 6


def test_ids_fit_their_column() -> None:
    budget = Budget(limit_usd="123456789.123456789", alerts=("12.3456789%",), timezone="America/Argentina/Rio_Gallegos")  # type: ignore[arg-type]
    (alert,) = due("t" * 64, budget, 10**30, window_bounds("month", budget.timezone, NOW), NOW)
    assert len(alert.addressed("env:" + "X" * 190)) <= 160
