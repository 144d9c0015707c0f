"""Totals after given records, and the text that Prometheus reads."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.domain.money.usage import Usage
from gateway.domain.policy import Policy
from gateway.domain.tenant import Key, Tenant
from gateway.telemetry.exposition import text as exposition
from gateway.telemetry.host import Host, report
from gateway.telemetry.metrics import COUNTERS, HISTOGRAMS, MOST_TEAMS, OTHERS, SECONDS, Histogram, Totals, figures
from tests.telemetry.conftest import LARGE, SIMULATED, SMALL, attempted, record, served


def totals(*records: Any) -> Totals:
    total = Totals()
    for one in records:
        total.add(one)
    return total


def shown(total: Totals, rooms: Any = None) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Sample name → sorted labels → value, as a Prometheus server would read it."""
    host = Host()
    host.add(report(0, total, figures(rooms or {})), living=True)
    return read(exposition(host).decode())


def read(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """As `shown`."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series = found.setdefault(sample.name, {})
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in series, f"{sample.name}{labels} twice"
            series[labels] = sample.value
    return found


def labelled(**labels: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name.rstrip("_"), value) for name, value in labels.items()))


def test_requests_are_counted_by_team_backend_cache_and_status() -> None:
    hit = record(cache="exact", saved_pico=5_000_000)
    refused = record(cache="off", status=429, error="rate_limit_exceeded")
    found = shown(totals(served(), served(), served("other", LARGE), hit, refused))
    assert found["thriftgate_requests_total"] == {
        labelled(team="search", backend="small", cache="miss", status="200"): 2,
        labelled(team="other", backend="large", cache="miss", status="200"): 1,
        labelled(team="search", backend="", cache="exact", status="200"): 1,
        labelled(team="search", backend="", cache="off", status="429"): 1,
    }
    assert found["thriftgate_cache_saved_usd_total"] == {labelled(team="search"): pytest.approx(5e-6)}


def test_tokens_are_counted_in_classes_that_do_not_overlap() -> None:
    seen = record()
    attempted(seen, usage=Usage(10, cached_tokens=5, cache_write_5m_tokens=3, output_tokens=20, reasoning_tokens=4))
    assert shown(totals(seen))["thriftgate_tokens_total"] == {
        labelled(team="search", backend="small", class_="input"): 13,
        labelled(team="search", backend="small", class_="cached"): 5,
        labelled(team="search", backend="small", class_="output"): 24,
    }


def test_every_attempt_counts_and_an_escalated_request_pays_for_both() -> None:
    seen = record(escalated=True)
    attempted(seen, SMALL, outcome="escalated", cost_pico=1_000_000)
    attempted(seen, LARGE, cost_pico=7_000_000)
    found = shown(totals(seen))
    assert found["thriftgate_attempts_total"] == {
        labelled(backend="small", outcome="escalated"): 1,
        labelled(backend="large", outcome="ok"): 1,
    }
    assert found["thriftgate_cost_usd_total"] == {
        labelled(team="search", backend="small"): pytest.approx(1e-6),
        labelled(team="search", backend="large"): pytest.approx(7e-6),
    }
    assert found["thriftgate_escalations_total"] == {labelled(team="search"): 1}
    assert found["thriftgate_requests_total"] == {
        labelled(team="search", backend="large", cache="miss", status="200"): 1
    }


def test_an_unknown_price_is_counted_apart_and_never_as_nothing() -> None:
    unpriced, simulated, never_called = record(), record(), record()
    attempted(unpriced, cost_pico=None)
    attempted(simulated, SIMULATED, cost_pico=None)
    attempted(never_called, outcome="failed", error="ledger_unavailable", usage=None, cost_pico=None)
    found = shown(totals(unpriced, simulated, never_called))
    assert found["thriftgate_unpriced_attempts_total"] == {labelled(backend="small"): 1}
    assert "thriftgate_cost_usd_total" not in found


def test_trimmed_tokens_and_degraded_parts_are_counted() -> None:
    found = shown(totals(served(trimmed_tokens=40, degraded={"state", "embedder"}), served(degraded={"state"})))
    assert found["thriftgate_trimmed_tokens_total"] == {labelled(team="search"): 40}
    assert found["thriftgate_degraded_requests_total"] == {labelled(part="state"): 2, labelled(part="embedder"): 1}


def test_durations_fall_into_cumulative_buckets() -> None:
    found = shown(totals(served(duration_ms=5.0), served(duration_ms=70.0), served(duration_ms=999_999.0)))
    buckets = found["thriftgate_request_duration_seconds_bucket"]
    assert buckets[labelled(cache="miss", le="0.005")] == 1
    assert buckets[labelled(cache="miss", le="0.05")] == 1
    assert buckets[labelled(cache="miss", le="0.1")] == 2
    assert buckets[labelled(cache="miss", le="60.0")] == 2
    assert buckets[labelled(cache="miss", le="+Inf")] == 3
    assert found["thriftgate_request_duration_seconds_count"] == {labelled(cache="miss"): 3}
    assert found["thriftgate_request_duration_seconds_sum"][labelled(cache="miss")] == pytest.approx(1000.074)


def test_the_first_byte_is_measured_from_the_attempts_own_beginning() -> None:
    seen = record()
    attempted(seen, SMALL, outcome="failed", first_byte_at=None)
    attempted(seen, LARGE, after_s=5.0)
    found = shown(totals(seen))["thriftgate_first_byte_seconds_bucket"]
    assert found[labelled(backend="large", le="0.05")] == 1
    assert not any(("backend", "small") in labels for labels in found)


def test_a_clock_that_jumps_back_does_not_make_a_negative_time() -> None:
    seen = record()
    attempted(seen, first_byte_at=0.0)
    assert shown(totals(seen))["thriftgate_first_byte_seconds_sum"] == {labelled(backend="small"): 0.0}


def test_a_histogram_counts_a_bound_as_below_itself() -> None:
    histogram = Histogram()
    for bound in SECONDS:
        histogram.add(bound)
    assert [count for _, count in histogram.cumulative()] == [*range(1, len(SECONDS) + 1), len(SECONDS)]


def test_figures_of_rooms_are_gauges_and_words_among_them_are_left_out() -> None:
    found = shown(Totals(), {"cache": lambda: {"entries": 3, "epoch": "abc", "share": 0.5}})
    assert found["thriftgate_room"] == {
        labelled(room="cache", figure="entries"): 3,
        labelled(room="cache", figure="share"): 0.5,
    }


def test_a_room_whose_figures_fail_does_not_take_the_others_with_it() -> None:
    def fails() -> dict[str, int]:
        raise RuntimeError("not now")

    found = shown(totals(served()), {"ill": fails, "well": lambda: {"open": 1}})
    assert found["thriftgate_room"] == {labelled(room="well", figure="open"): 1}
    assert found["thriftgate_requests_total"]


def test_labels_that_look_like_syntax_are_escaped() -> None:
    seen = served()
    seen.tenant = Tenant(Key("key_1", 'a"b\\c\n'), Policy(team="search"))
    (labels,) = shown(totals(seen))["thriftgate_requests_total"]
    assert dict(labels)["team"] == 'a"b\\c\n'


def test_every_counter_has_a_help_text_and_its_labels() -> None:
    assert len({name for name, *_ in COUNTERS}) == len(COUNTERS)
    for _, attribute, text, labels, factor in COUNTERS:
        assert hasattr(Totals(), attribute)
        assert text.endswith(".")
        assert labels
        assert factor > 0


def test_what_totals_tell_makes_the_same_totals_again_and_twice_the_sum() -> None:
    total = totals(served(), served("other", LARGE, trimmed_tokens=3), record(cache="exact", saved_pico=7))
    total.cost_pico["whale", "large"] = 1 << 80  # more than JSON's numbers hold
    twice = Totals()
    for _ in range(2):
        twice.take(orjson.loads(orjson.dumps(total.as_json())))
    for name, attribute, *_ in (*COUNTERS, *HISTOGRAMS):
        once, sum_of_both = getattr(total, attribute), getattr(twice, attribute)
        assert once.keys() == sum_of_both.keys(), name
        for labels, value in once.items():
            if isinstance(value, Histogram):
                assert sum_of_both[labels].counts == [2 * count for count in value.counts]
                assert sum_of_both[labels].sum == 2 * value.sum
            else:
                assert sum_of_both[labels] == 2 * value


def test_more_teams_than_a_scrape_should_carry_are_told_together() -> None:
    total = totals(*(served(f"team-{number}") for number in range(MOST_TEAMS + 5)))
    again = totals(served("team-0"))
    assert sum(total.requests.values()) == MOST_TEAMS + 5
    assert len(total.requests) == MOST_TEAMS + 1
    assert total.requests[OTHERS, "small", "miss", "200"] == 5
    assert again.requests["team-0", "small", "miss", "200"] == 1
