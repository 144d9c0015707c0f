"""The figures of one host: of its running workers, its ended workers and its supervisor."""

from __future__ import annotations

import logging
import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from gateway.telemetry import page
from gateway.telemetry.metrics import Totals

log = logging.getLogger(__name__)

PUBLISH_S = 1.0
"""Seconds between two publications of a process's figures. So the figures of other processes are usually at most this
old."""
SUPERVISOR, PAST = "supervisor", "past"
"""Names of the figure files that are not of workers: the supervisor's figures, and the sums over all workers that have
ended."""
REMEMBERED = 256
"""Maximum names of ended workers that are stored with the sums. A reader needs the names to count each worker only
once."""


def _mean(values: Iterable[float]) -> float:
    """The mean of `values`. Python's module `statistics` is not used, because it would import fractions and other
    modules."""
    known = list(values)
    return sum(known) / len(known)


_NOW: dict[Callable[[Iterable[float]], float], tuple[str, ...]] = {
    sum: (
        *("in_flight", "open", "waiting", "waiting_bytes", "segment_bytes", "leases", "in_use", "bytes", "runner"),
        *("semantic_bytes", "embedder_waiting", "bound", "running", "under_way", "under_way_bytes"),
        *("sessions", "users", "at_hand", "kept_bytes"),
    ),
    min: ("healthy", "ready", "semantic_ready", "embedder_ready"),
    max: (
        *("age_s", "stale", "lag_ms", "policies", "keys", "entries", "segment", "teams", "lengths_known"),
        *("semantic_questions", "semantic_partitions", "embedder_failed", "scopes_barred"),
        *("known", "below_target", "plans_on_trial", "strategies", "server_running", "server_waiting"),
        *("server_tokens_per_second", "server_kv_used", "cap_usd"),
    ),
    _mean: ("available", "first_byte_ms"),
}
HOW = {figure: how for how, figures in _NOW.items() for figure in figures}
"""Gauge → function that combines the gauge's values of the running workers. All other figures are counters. A counter
is added up over running and ended workers."""

Figures = dict[tuple[str, str], float]


def how(figure: str) -> Callable[[Iterable[float]], float] | None:
    """The function that combines a gauge's values over the workers; None for a counter. `figure`: the name of the
    gauge or counter, or `BACKEND.NAME`.
    """
    return HOW.get(figure.rpartition(".")[2])


@dataclass(slots=True)
class Life:
    """The figures that one running worker published last."""

    worker: str
    at: float
    parts: Figures
    in_flight: int


@dataclass(slots=True)
class Host:
    """All figures of one host."""

    totals: Totals = field(default_factory=Totals)
    counts: Figures = field(default_factory=lambda: defaultdict(float))
    """(Part, figure) → sum over all workers, also over those that have ended. Counters only."""
    living: list[Life] = field(default_factory=list)
    supervisor: Mapping[str, Any] = field(default_factory=dict)

    def add(self, report: Mapping[str, Any], living: bool) -> None:
        """Add the figures of one worker, or the sums over the ended workers. `living`: whether the worker is
        running."""
        self.totals.take(report["totals"])
        parts: Figures = {(part, figure): value for part, figure, value in report["parts"]}
        for place, value in parts.items():
            if how(place[1]) is None:
                self.counts[place] += value
        if living:
            self.living.append(Life(str(report["worker"]), report["at"], parts, report["in_flight"]))

    def parts(self) -> Figures:
        """(Part, figure) → value for the host: sums of counters, and gauges combined over the running workers."""
        values: dict[tuple[str, str], list[float]] = defaultdict(list)
        for life in self.living:
            for place, value in life.parts.items():
                values[place].append(value)
        found = dict(self.counts)
        found.update({place: rule(values[place]) for place in values if (rule := how(place[1]))})
        return found

    def oldest_s(self, now: float) -> float:
        """Age in seconds of the oldest figures that a running worker has published."""
        return max((now - life.at for life in self.living), default=0.0)


def report(worker: int, totals: Totals, parts: Iterable[tuple[str, str, float]]) -> dict[str, Any]:
    """One worker's figures as JSON values. `totals`: the worker's counters and histograms. `parts`: (part, figure,
    value) for all other figures.
    """
    return {
        "worker": worker,
        "at": time.time(),
        "totals": totals.as_json(),
        "parts": list(parts),
        "in_flight": totals.in_flight,
    }


def collect(folder: Path, own: tuple[str, Mapping[str, Any]] | None = None) -> Host:
    """Read the published figures of all processes. `own`: name and current figures of the calling process, whose
    file is not read.
    """
    host, lives = Host(), {}
    mine = own[0] if own else ""
    for name in page.names(folder):
        if name not in (SUPERVISOR, PAST, mine):
            lives[name] = (page.alive(folder, name), page.read(folder, name))
    past = orjson.loads(page.read(folder, PAST) or b"{}")  # read last: it names the workers that have ended meanwhile
    if past:
        host.add(past, living=False)
    for name, (living, data) in lives.items():
        if data is not None and name not in past.get("added", ()):
            host.add(orjson.loads(data), living)
    if own and mine not in past.get("added", ()):
        host.add(own[1], living=True)
    host.supervisor = orjson.loads(page.read(folder, SUPERVISOR) or b"{}")
    return host


class Publisher:
    """Publishes one worker's figures."""

    def __init__(self, folder: Path, worker: int) -> None:
        """Create the file of the worker's figures. Raises OSError."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._page = page.MetricsFile(folder, f"worker-{worker}-{time.time_ns()}")
        self._failed = False

    def publish(self, report: Mapping[str, Any]) -> None:
        """Publish the worker's figures. After a failed write, readers still see the last published figures, so
        counters never decrease.
        """
        try:
            self._page.write(orjson.dumps(report))
        except OSError as error:
            if not self._failed:
                log.error("this worker's figures cannot be published: %s", error)
            self._failed = True
        else:
            self._failed = False

    def collect(self, report: Mapping[str, Any]) -> Host:
        return collect(self._folder, (self._page.name, report))

    def close(self) -> None:
        self._page.close()


class Archive:
    """Publishes the supervisor's figures and the sums over ended workers. Call it from one thread."""

    def __init__(self, folder: Path) -> None:
        """Delete the figure files of an earlier gateway. Raises OSError."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in folder.iterdir():
            left.unlink()
        self._folder = folder
        self._own, self._past = page.MetricsFile(folder, SUPERVISOR), page.MetricsFile(folder, PAST)
        self._sum = Host()
        self._added: deque[str] = deque(maxlen=REMEMBERED)

    def write(self, report: Mapping[str, Any]) -> None:
        """Publish the supervisor's figures and the sums that include ended workers. Raises OSError; the next call
        then publishes the missing sums too.
        """
        self._own.write(orjson.dumps({"pid": os.getpid(), "at": time.time(), **report}))
        ended = [name for name in page.names(self._folder) if not page.alive(self._folder, name)]
        if not ended:
            return
        for name in ended:
            if name not in self._added:
                if data := page.read(self._folder, name):
                    self._sum.add(orjson.loads(data), living=False)
                self._added.append(name)
        parts = [(part, figure, value) for (part, figure), value in self._sum.counts.items()]
        past = {"totals": self._sum.totals.as_json(), "parts": parts, "added": list(self._added)}
        self._past.write(orjson.dumps(past))
        for name in ended:
            page.remove(self._folder, name)

    def close(self) -> None:
        self._own.close()
        self._past.close()
