"""Counters and histograms of one worker. They are counted with plain numbers. Exporters read them on demand."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gateway.domain.record import Record

log = logging.getLogger(__name__)

Labels = tuple[str, ...]
MOST_TEAMS = 1000
"""Maximum number of teams with series of their own. All further teams are counted together, so that the metrics stay
small."""
OTHERS = "(others)"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Histogram:
    """A histogram: number of values per bucket, and their sum in seconds. The last bucket has no upper bound."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        """`bounds`: the upper bounds of all buckets except the last, in ascending order."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def take(self, counts: Iterable[int], total: float) -> None:
        """Add the counts and the sum of another histogram."""
        self.counts = [mine + its for mine, its in zip(self.counts, counts, strict=True)]
        self.sum += total

    def cumulative(self) -> Iterable[tuple[str, float]]:
        """Yield (upper bound, number of values up to this bound), as Prometheus requires."""
        seen = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            seen += count
            yield bound, float(seen)


class Totals:
    """The counters and histograms of this worker since its start."""

    def __init__(self) -> None:
        self.requests: defaultdict[Labels, int] = defaultdict(int)  # team, backend that answered, cache, status
        self.classes: defaultdict[Labels, int] = defaultdict(int)  # team, traffic class
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
        self._teams: set[str] = set()

    def add(self, record: Record) -> None:
        team = record.tenant.team
        if team not in self._teams:
            team = self._new(team)
        served = record.served_by
        cache = record.cache
        self.requests[team, served.backend.name if served else "", cache, str(record.status)] += 1
        if record.traffic_class:
            self.classes[team, record.traffic_class] += 1
        self.duration[(cache,)].add((record.duration_ms or 0.0) / 1000)
        for attempt in record.attempts:
            name = attempt.backend.name
            self.attempts[name, attempt.outcome] += 1
            if attempt.first_byte_at is not None:
                self.first_byte[(name,)].add(max(0.0, attempt.first_byte_at - attempt.started_at))
            usage, cost = attempt.usage, attempt.cost_pico
            if usage is not None:
                tokens, cached = self.tokens, usage.cached_tokens
                tokens[team, name, "input"] += usage.all_input - cached
                if cached:
                    tokens[team, name, "cached"] += cached
                tokens[team, name, "output"] += usage.all_output
                if attempt.unpriced or (cost is None and not attempt.backend.simulated):
                    self.unpriced[(name,)] += 1
            if cost is not None:
                self.cost_pico[team, name] += cost
        if record.saved_pico:
            self.saved_pico[(team,)] += record.saved_pico
        if record.trimmed_tokens:
            self.trimmed[(team,)] += record.trimmed_tokens
        if record.escalated:
            self.escalations[(team,)] += 1
        for part in record.degraded:
            self.degraded[(part,)] += 1

    def _new(self, team: str) -> str:
        """The label for a team that has no series yet: its name, or `OTHERS` above `MOST_TEAMS` teams."""
        if len(self._teams) >= MOST_TEAMS:
            return OTHERS
        self._teams.add(team)
        return team

    def as_json(self) -> dict[str, Any]:
        """The counters and histograms as JSON values.

        A counter maps to rows of labels and value. A histogram maps to rows of labels, counts and sum.
        """
        counters = {
            attribute: [[*labels, _fitting(value)] for labels, value in getattr(self, attribute).items()]
            for _, attribute, *_ in COUNTERS
        }
        histograms = {
            attribute: [[*labels, each.counts, each.sum] for labels, each in getattr(self, attribute).items()]
            for _, attribute, _ in HISTOGRAMS
        }
        return {**counters, **histograms}

    def take(self, published: Mapping[str, Any]) -> None:
        """Add the counters and histograms that another process has published to those of this object."""
        for _, attribute, *_ in COUNTERS:
            sums = getattr(self, attribute)
            for *labels, value in published[attribute]:
                sums[tuple(labels)] += int(value)
        for _, attribute, _ in HISTOGRAMS:
            for *labels, counts, total in published[attribute]:
                getattr(self, attribute)[tuple(labels)].take(counts, total)


def _fitting(value: int) -> int | str:
    """Return `value`, as text if it exceeds 64 bits, because the JSON encoder cannot write such numbers."""
    return value if value < 1 << 63 else str(value)


COUNTERS: tuple[tuple[str, str, str, Labels, float], ...] = (
    ("thriftgate_requests", "requests", "Requests answered.", ("team", "backend", "cache", "status"), 1),
    ("thriftgate_requests_by_class", "classes", "Requests by traffic class.", ("team", "class"), 1),
    ("thriftgate_attempts", "attempts", "Calls of backends.", ("backend", "outcome"), 1),
    ("thriftgate_tokens", "tokens", "Tokens by class.", ("team", "backend", "class"), 1),
    ("thriftgate_cost_usd", "cost_pico", "Spend in USD; exact figures are in the ledger.", ("team", "backend"), 1e-12),
    (
        "thriftgate_unpriced_attempts",
        "unpriced",
        "Calls with tokens or units that have no known price.",
        ("backend",),
        1,
    ),
    ("thriftgate_cache_saved_usd", "saved_pico", "Estimated cost saved by cache hits, in USD.", ("team",), 1e-12),
    ("thriftgate_trimmed_tokens", "trimmed", "Input tokens dropped by trimming.", ("team",), 1),
    ("thriftgate_escalations", "escalations", "Weak answers replaced by strong ones.", ("team",), 1),
    ("thriftgate_degraded_requests", "degraded", "Requests served while a part was down.", ("part",), 1),
    ("thriftgate_refused", "refused", "Requests refused before a tenant was known.", ("code",), 1),
)
"""(Prometheus name, attribute of `Totals`, help, label names, factor from the counted value to the exported value)."""

HISTOGRAMS = (
    ("thriftgate_request_duration_seconds", "duration", "cache"),
    ("thriftgate_first_byte_seconds", "first_byte", "backend"),
)
"""(Prometheus name, attribute of `Totals`, label name)."""

Stats = Callable[[], Mapping[str, int | float | str]]


def figures(parts: Mapping[str, Stats]) -> Iterable[tuple[str, str, int | float]]:
    """Yield (part, figure, value) for the numeric figures of all parts. A part whose function raises an error is
    left out.
    """
    for part, stats in parts.items():
        try:
            found = stats()
        except Exception:
            log.exception("the figures of %s cannot be read", part)
            continue
        for figure, value in found.items():
            if isinstance(value, int | float):
                yield part, figure, value
