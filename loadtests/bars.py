"""The bars: what must be, what is good, what would be a moonshot; and the verdict on a figure."""

from __future__ import annotations

from typing import NamedTuple


class Bar(NamedTuple):
    """At most so much."""

    must: float
    good: float
    moonshot: float

    def verdict(self, value: float) -> str:
        """`MISSED`, or the furthest column that it reaches."""
        if value <= self.moonshot:
            return "moonshot"
        if value <= self.good:
            return "good"
        return "must" if value <= self.must else "MISSED"


RATIO: dict[tuple[str, str], Bar] = {
    ("1k", "thriftgate"): Bar(9, 6, 4),
    ("32k", "thriftgate"): Bar(5, 3.5, 2),
    ("burst", "thriftgate"): Bar(4, 2.5, 1.5),
    ("paced", "thriftgate"): Bar(3, 2, 1.3),
    **{(f"agent{dialect}", "thriftgate"): Bar(6, 4, 2) for dialect in ("", "-messages", "-responses")},
    ("lru", "hit"): Bar(1.0, 0.8, 0.6),
    ("get", "hit"): Bar(1.5, 1.0, 0.9),
    ("known", "everything"): Bar(14, 10, 7),
}
"""(workload, entry) → CPU per answer ÷ the base entry's in the same round."""
OTHER_CPU = Bar(0.15, 0.15, 0.15)
"""Of the row with embedding: CPU that is not the embedding's ÷ the embedding's."""
ADDED_P50_MS = Bar(0.6, 0.25, 0.1)
"""At concurrency 1, 1 KB, over nginx."""
ADDED_SESSION_MS = Bar(30, 15, 6)
"""To all requests of a session of one client, over nginx."""
P99_RATIO = Bar(8, 5, 3)
"""At concurrency 64, 1 KB, ÷ nginx's."""
TRANSIT_MS = Bar(1.0, 0.5, 0.2)
"""p50 of a paced chunk's way, over direct."""
IDLE_MIB = Bar(90, 70, 50)
GROWTH_MIB = Bar(10, 5, 1)
START_CPU_S = Bar(1.0, 0.7, 0.5)
NONE = Bar(0, 0, 0)
QUIET = 1.0
"""Milliseconds are judged only if the load average of the last minute was below it just before the first cell."""
