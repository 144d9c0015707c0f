"""What is odd is told, what is usual is not, and a past that was itself odd now and then moves nothing."""

from __future__ import annotations

from random import Random

import pytest

from gateway.alerts.detect.anomalies import found as anomalies
from gateway.alerts.detect.anomalies import robust_z
from gateway.alerts.detect.hours import Backend, Hour

NOW = 1_800_000_000.0
CURRENT = int(NOW // 3600)
USD = 10**12


def past(hours: int = 14 * 24, seed: int = 1, **facts: int) -> dict[int, Hour]:
    """A team that spends 1 to 4 USD an hour, and half of whose look-ups hit."""
    random = Random(seed)
    return {
        CURRENT - 2 - ago: Hour(
            random.randint(USD, 4 * USD),
            facts.get("hits", 50) + random.randint(-5, 5),
            100,
            {"gpt": Backend(2 * USD)},
        )
        for ago in range(hours)
    }


def kinds(hours: dict[int, Hour], now: float = NOW) -> list[str]:
    return [alert.kind for alert in anomalies("search", hours, now)]


def test_usual_hours_are_not_told() -> None:
    for seed in range(20):
        assert kinds({**past(seed=seed), CURRENT: Hour(4 * USD, 48, 100, {"gpt": Backend(4 * USD)})}) == []


@pytest.mark.parametrize(("usd", "expected"), [(6, []), (40, ["spend_rate"])])
def test_an_hour_that_costs_many_times_the_usual_is_told(usd: int, expected: list[str]) -> None:
    assert kinds({**past(), CURRENT: Hour(usd * USD)}) == expected
    assert kinds({**past(), CURRENT - 1: Hour(usd * USD)}) == expected


def test_a_few_wild_hours_in_the_past_hide_nothing() -> None:
    wild = past()
    for hour in list(wild)[: len(wild) // 4]:
        wild[hour] = Hour(500 * USD)
    assert kinds({**wild, CURRENT: Hour(400 * USD)}) == ["spend_rate"]


def test_a_short_past_calls_nothing_odd() -> None:
    assert kinds({**past(hours=20), CURRENT: Hour(500 * USD, 0, 100)}) == []


def test_a_past_of_equal_hours_does_not_make_little_things_odd() -> None:
    even = {hour: Hour(USD) for hour in past()}
    assert kinds({**even, CURRENT: Hour(2 * USD)}) == []
    assert kinds({**even, CURRENT: Hour(4 * USD)}) == ["spend_rate"]


def test_attempts_without_a_price_are_told_with_their_backends() -> None:
    hours = {CURRENT: Hour(backends={"b": Backend(unpriced=2), "a": Backend(unpriced=1), "c": Backend(USD)})}
    (alert,) = anomalies("search", hours, NOW)
    assert (alert.kind, alert.payload["attempts"]) == ("unpriced", {"a": 1, "b": 2})
    assert "3 attempts of team search have no price, or units without one, on a, b" in alert.payload["text"]


def test_answers_for_nothing_are_odd_only_of_a_backend_that_did_cost_something() -> None:
    free = {CURRENT: Hour(backends={"gpt": Backend(free=4), "local": Backend(free=9)})}
    assert kinds(free) == []
    (alert,) = anomalies("search", past(hours=1) | free, NOW)
    assert (alert.kind, alert.payload["attempts"]) == ("zero_cost", {"gpt": 4})


@pytest.mark.parametrize(
    ("hits", "lookups", "expected"), [(50, 100, []), (30, 100, []), (2, 100, ["hit_rate"]), (0, 20, [])]
)
def test_a_cache_that_went_cold_is_told(hits: int, lookups: int, expected: list[str]) -> None:
    assert kinds({**past(), CURRENT: Hour(2 * USD, hits, lookups)}) == expected


def test_a_cache_that_never_hit_has_not_gone_cold() -> None:
    assert kinds({**past(hits=5), CURRENT: Hour(2 * USD, 0, 100)}) == []


def test_each_kind_is_told_once_a_day() -> None:
    hours = {**past(), CURRENT: Hour(40 * USD)}
    first, again = anomalies("search", hours, NOW), anomalies("search", hours, NOW + 60)
    assert first[0].id == again[0].id == "search/anomaly/spend_rate/2027-01-15T00:00:00Z"
    tomorrow = {hour + 24: facts for hour, facts in hours.items()}
    assert anomalies("search", tomorrow, NOW + 86400)[0].id != first[0].id


def test_the_score_is_the_published_one() -> None:
    """0.6745 (x - median) / MAD of 1..9 with an outlier of 100: median 5.5, MAD 2.5."""
    values = [*range(1, 10), 100]
    assert robust_z(100, values, 0.0) == pytest.approx(0.6745 * 94.5 / 2.5)
    assert robust_z(5, [5, 5, 5], 0.1) == 0
