"""Totals of one worker, added to by plain arithmetic; Prometheus and OTLP read them when they ask."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from gateway.domain.record import Record

if TYPE_CHECKING:
    from prometheus_client.core import Metric

log = logging.getLogger(__name__)

Labels = tuple[str, ...]
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Histogram:
    """Counts per bucket of `SECONDS` (the last is +Inf) and the sum, in seconds."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(SECONDS, value)] += 1
        self.sum += value

    def cumulative(self) -> Iterable[tuple[str, float]]:
        """(upper bound, requests at or below it), as Prometheus wants them."""
        seen = 0
        for bound, count in zip((*map(str, SECONDS), "+Inf"), self.counts, strict=True):
            seen += count
            yield bound, float(seen)


class Totals:
    """What this worker has seen since it started."""

    def __init__(self) -> None:
        self.requests: defaultdict[Labels, int] = defaultdict(int)  # team, model served, cache, status
        self.attempts: defaultdict[Labels, int] = defaultdict(int)  # backend, outcome
        self.tokens: defaultdict[Labels, int] = defaultdict(int)  # team, backend, input|output|cached
        self.cost_pico: defaultdict[Labels, int] = defaultdict(int)  # team, backend
        self.unpriced: defaultdict[Labels, int] = defaultdict(int)  # backend
        self.saved_pico: defaultdict[Labels, int] = defaultdict(int)  # team
        self.trimmed: defaultdict[Labels, int] = defaultdict(int)  # team
        self.escalations: defaultdict[Labels, int] = defaultdict(int)  # team
        self.degraded: defaultdict[Labels, int] = defaultdict(int)  # part
        self.refused: defaultdict[Labels, int] = defaultdict(int)  # code; before a tenant was known
        self.duration: defaultdict[Labels, Histogram] = defaultdict(Histogram)  # cache
        self.first_byte: defaultdict[Labels, Histogram] = defaultdict(Histogram)  # backend
        self.in_flight = 0

    def add(self, record: Record) -> None:
        team = record.tenant.team
        served = record.served_by
        self.requests[team, served.backend.name if served else "", record.cache, str(record.status)] += 1
        self.duration[(record.cache,)].add((record.duration_ms or 0.0) / 1000)
        for attempt in record.attempts:
            name = attempt.backend.name
            self.attempts[name, attempt.outcome] += 1
            if attempt.first_byte_at is not None:
                self.first_byte[(name,)].add(max(0.0, attempt.first_byte_at - attempt.started_at))
            if attempt.usage is not None:
                usage = attempt.usage
                self.tokens[team, name, "input"] += usage.all_input - usage.cached_tokens
                self.tokens[team, name, "cached"] += usage.cached_tokens
                self.tokens[team, name, "output"] += usage.all_output
            if attempt.cost_pico is not None:
                self.cost_pico[team, name] += attempt.cost_pico
            elif attempt.usage is not None and attempt.backend.kind != "simulated":  # without usage: never called
                self.unpriced[(name,)] += 1
        if record.saved_pico:
            self.saved_pico[(team,)] += record.saved_pico
        if record.trimmed_tokens:
            self.trimmed[(team,)] += record.trimmed_tokens
        if record.escalated:
            self.escalations[(team,)] += 1
        for part in record.degraded:
            self.degraded[(part,)] += 1


COUNTERS: tuple[tuple[str, str, str, Labels, float], ...] = (
    ("thriftgate_requests", "requests", "Requests answered.", ("team", "backend", "cache", "status"), 1),
    ("thriftgate_attempts", "attempts", "Calls of backends.", ("backend", "outcome"), 1),
    ("thriftgate_tokens", "tokens", "Tokens by class.", ("team", "backend", "class"), 1),
    ("thriftgate_cost_usd", "cost_pico", "Spend; the ledger has it exact.", ("team", "backend"), 1e-12),
    ("thriftgate_unpriced_attempts", "unpriced", "Calls whose price is unknown.", ("backend",), 1),
    ("thriftgate_cache_saved_usd", "saved_pico", "What cache hits would have cost.", ("team",), 1e-12),
    ("thriftgate_trimmed_tokens", "trimmed", "Input tokens left out.", ("team",), 1),
    ("thriftgate_escalations", "escalations", "Weak answers replaced by strong ones.", ("team",), 1),
    ("thriftgate_degraded_requests", "degraded", "Requests served while a part was down.", ("part",), 1),
    ("thriftgate_refused", "refused", "Requests refused before a tenant was known.", ("code",), 1),
)
"""Prometheus name, attribute of Totals, help, label names, factor."""

Stats = Callable[[], Mapping[str, int | float | str]]


def figures(rooms: Mapping[str, Stats]) -> Iterable[tuple[str, str, int | float]]:
    """(room, figure, value) of all that is a number. A room that fails is left out."""
    for room, stats in rooms.items():
        try:
            found = stats()
        except Exception:
            log.exception("the figures of %s cannot be read", room)
            continue
        for figure, value in found.items():
            if isinstance(value, int | float):
                yield room, figure, value


class Collector:
    """Prometheus' view: nothing is computed before a scrape."""

    def __init__(self, totals: Totals, rooms: Mapping[str, Stats]) -> None:
        self._totals = totals
        self._rooms = rooms

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for name, attribute, text, labels, factor in COUNTERS:
            counter = CounterMetricFamily(name, text, labels=labels)
            for values, total in getattr(self._totals, attribute).items():
                counter.add_metric(values, total * factor)
            yield counter
        for name, histograms, label in (
            ("thriftgate_request_duration_seconds", self._totals.duration, "cache"),
            ("thriftgate_first_byte_seconds", self._totals.first_byte, "backend"),
        ):
            family = HistogramMetricFamily(name, "Seconds.", labels=(label,))
            for values, histogram in histograms.items():
                family.add_metric(values, buckets=list(histogram.cumulative()), sum_value=histogram.sum)
            yield family
        yield GaugeMetricFamily("thriftgate_in_flight", "Requests in progress.", value=self._totals.in_flight)
        rooms = GaugeMetricFamily("thriftgate_room", "Figures of each part.", labels=("room", "figure"))
        for room, figure, value in figures(self._rooms):
            rooms.add_metric((room, figure), value)
        yield rooms


def exposition(totals: Totals, rooms: Mapping[str, Stats]) -> bytes:
    """The text that `/metrics` answers."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(Collector(totals, rooms))
    return generate_latest(registry)
