"""The text of `/metrics`: one host's figures in Prometheus format."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gateway import __version__
from gateway.telemetry.host import Figures, Host
from gateway.telemetry.metrics import COUNTERS, HISTOGRAMS, Labels

if TYPE_CHECKING:
    from prometheus_client.core import Metric

Samples = Iterable[tuple[Labels, float]]
Family = tuple[str, str, str, Labels]
"""(Name in Prometheus, kind, help, label names). The name of a counter has no `_total`, which Prometheus adds."""

NAMED: dict[tuple[str, str], tuple[str, str, str]] = {
    ("state", "healthy"): ("thriftgate_state_up", "gauge", "1 if every worker reaches the state server."),
    ("policies", "stale"): ("thriftgate_policies_stale", "gauge", "1 if a worker refused the last reload."),
    ("keys", "age_s"): ("thriftgate_keys_age_seconds", "gauge", "Seconds since keys were last read."),
    ("journal", "open"): ("thriftgate_open_attempts", "gauge", "Calls of backends in progress."),
    ("journal", "waiting"): (
        "thriftgate_journal_waiting",
        "gauge",
        "Lines that are waiting because the disk refused them.",
    ),
    ("journal", "refusals"): (
        "thriftgate_journal_refusals",
        "counter",
        "Calls not made because the journal was not writable.",
    ),
    ("budgets", "exhausted"): (
        "thriftgate_budget_refusals",
        "counter",
        "Requests refused because their budget was spent.",
    ),
    ("limits", "refused"): ("thriftgate_limit_refusals", "counter", "Requests refused by a rate or concurrency limit."),
}
"""(Part, figure) → (name, kind, help) of the metric, for figures that have a metric of their own."""

OF_BACKENDS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    (
        "thriftgate_backend_available",
        "gauge",
        "Share of the workers that consider the backend available.",
        ("available",),
    ),
    ("thriftgate_backend_in_flight", "gauge", "Calls in progress.", ("in_flight",)),
    ("thriftgate_backend_waiting", "gauge", "Requests in its queue.", ("waiting",)),
    (
        *("thriftgate_backend_refusals", "counter", "Requests that its queue refused, or that waited in it too long."),
        ("refused", "refused_batch", "refused_share", "timed_out"),
    ),
)
"""The metrics of each backend: (name, kind, help, figures). The metric's value is the sum of these figures of the part
`fleet`."""

OF_SUPERVISOR: dict[str, Family] = {
    "workers_wanted": ("thriftgate_workers_wanted", "gauge", "Configured number of workers.", ()),
    "workers_ready": ("thriftgate_workers_ready", "gauge", "Workers that answer requests.", ()),
    "worker_starts": ("thriftgate_worker_starts", "counter", "Workers started.", ()),
    "worker_ends": ("thriftgate_worker_restarts", "counter", "Workers replaced.", ("cause",)),
    "state_server_up": ("thriftgate_state_server_up", "gauge", "1 while the embedded state server runs.", ()),
    "state_server_ends": (
        "thriftgate_state_server_restarts",
        "counter",
        "Restarts of the embedded state server.",
        ("cause",),
    ),
    "local_model_up": ("thriftgate_local_model_up", "gauge", "1 while the local model's process runs.", ()),
    "litellm_up": ("thriftgate_litellm_up", "gauge", "1 while litellm's process runs.", ()),
    "ledger_lag": ("thriftgate_ledger_lag_seconds", "gauge", "Seconds since journals were last drained into SQL.", ()),
    "ledger_rows": ("thriftgate_ledger_rows", "counter", "Rows written into the ledger.", ()),
    "ledger_errors": ("thriftgate_ledger_errors", "counter", "Drains that failed.", ()),
    "ledger_refused": ("thriftgate_ledger_refused_rows", "counter", "Rows that the database refused.", ()),
    "ledger_damaged": ("thriftgate_ledger_damaged_lines", "counter", "Journal lines that cannot be read.", ()),
    "alerts": ("thriftgate_alerts", "counter", "Alerts and their deliveries.", ("outcome",)),
    "budget_used": (
        "thriftgate_budget_used_ratio",
        "gauge",
        "Spent share of a budget.",
        ("team", "window", "limit_usd"),
    ),
    "slo_budget_left": (
        "thriftgate_slo_error_budget_left_ratio",
        "gauge",
        "Share of the error budget of a quality objective that is left; below 0 if it is overspent.",
        ("team", "class"),
    ),
    "slo_burn_rate": (
        "thriftgate_slo_burn_rate",
        "gauge",
        "How fast the error budget of a quality objective is used; 1: it lasts exactly for the window.",
        ("team", "class"),
    ),
    "undrained_workers": (
        "thriftgate_undrained_workers",
        "gauge",
        "Dead workers that budgets hold money for, because their journals are not in the ledger.",
        ("host",),
    ),
}
"""Key of a figure that the supervisor publishes as [key, label values, value] → metric."""

PROCESSES: tuple[Family, ...] = (
    ("thriftgate_process_cpu_seconds", "counter", "CPU time, user and system.", ("process",)),
    (
        "thriftgate_process_resident_bytes",
        "gauge",
        "Memory, including pages shared with other processes.",
        ("process",),
    ),
)


def text(host: Host) -> bytes:
    """The text of `/metrics` for the figures of one host."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(Collector(host))
    return generate_latest(registry)


class Collector:
    """Builds the metrics in Prometheus' format. They are built anew each time that Prometheus reads (scrapes) them."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def collect(self) -> Iterable[Metric]:
        host, combined = self._host, self._host.parts()
        yield _family(("thriftgate_info", "gauge", "The gateway's version.", ("version",)), [((__version__,), 1.0)])
        yield from self._totals(combined)
        in_flight = sum(life.in_flight for life in host.living)
        yield _family(("thriftgate_in_flight", "gauge", "Requests in progress.", ()), [((), in_flight)])
        yield from self._workers()
        for place, (name, kind, what) in NAMED.items():
            yield _family((name, kind, what, ()), [((), combined[place])] if place in combined else [])
        for name, kind, what, names in OF_BACKENDS:
            yield _family((name, kind, what, ("backend",)), _of_backends(combined, names))
        yield _family(
            (
                "thriftgate_shed",
                "counter",
                "Requests refused by a busy worker.",
                ("reason", "class"),
            ),
            [
                (tuple(figure.rsplit(".", 1)), value)
                for (part, figure), value in combined.items()
                if part == "overload" and "." in figure
            ],
        )
        yield from self._supervisor()
        figures = [(place, value) for place, value in combined.items()]
        yield _family(("thriftgate_room", "gauge", "Figures of each part.", ("room", "figure")), figures)

    def _totals(self, combined: Figures) -> Iterable[Metric]:
        from prometheus_client.core import HistogramMetricFamily

        totals = self._host.totals
        backends = [
            values for values, _ in _of_backends(combined, ("available",))
        ]  # `increase` needs a series that starts at 0
        for name, attribute, what, labels, factor in COUNTERS:
            sums = dict.fromkeys(backends if labels == ("backend",) else (), 0) | getattr(totals, attribute)
            samples = [(values, total * factor) for values, total in sums.items()]
            yield _family((name, "counter", what, labels), samples)
        for name, attribute, label in HISTOGRAMS:
            family = HistogramMetricFamily(name, "Seconds.", labels=(label,))
            for values, histogram in getattr(totals, attribute).items():
                family.add_metric(values, buckets=list(histogram.cumulative()), sum_value=histogram.sum)
            yield family

    def _workers(self) -> Iterable[Metric]:
        """Yield the figures of each worker for which a sum over all workers has no meaning. The old and the new
        process of a restarted worker form one series.
        """
        busy: dict[Labels, float] = defaultdict(float)
        lag: dict[Labels, float] = defaultdict(float)
        for life in self._host.living:
            busy[(life.worker,)] += life.in_flight
            lag[(life.worker,)] = max(lag[(life.worker,)], life.parts.get(("overload", "lag_ms"), 0.0) / 1000)
        own = ("worker",)
        yield _family(("thriftgate_worker_in_flight", "gauge", "Requests in progress.", own), busy.items())
        yield _family(("thriftgate_worker_lag_seconds", "gauge", "Delay of its event loop.", own), lag.items())
        age = self._host.oldest_s(time.time())
        yield _family(
            ("thriftgate_figures_age_seconds", "gauge", "Age of the oldest figures of a living worker.", ()),
            [((), age)],
        )

    def _supervisor(self) -> Iterable[Metric]:
        published: dict[str, list[tuple[Labels, float]]] = defaultdict(list)
        for key, labels, value in self._host.supervisor.get("figures", ()):
            published[key].append((tuple(labels), value))
        for key, family in OF_SUPERVISOR.items():
            yield _family(family, published[key])
        seen = _processes(self._host.supervisor.get("processes", {}))
        for number, family in enumerate(PROCESSES):
            yield _family(family, [((name,), figures[number]) for name, figures in seen.items()])


def _family(family: Family, samples: Samples) -> Metric:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    name, kind, what, labels = family
    made = (CounterMetricFamily if kind == "counter" else GaugeMetricFamily)(name, what, labels=labels)
    for values, value in samples:
        made.add_metric(values, value)
    return made


def _of_backends(combined: Figures, names: tuple[str, ...]) -> Samples:
    found: dict[Labels, float] = defaultdict(float)
    for (part, figure), value in combined.items():
        backend, _, name = figure.rpartition(".")
        if part == "fleet" and backend and name in names:
            found[(backend,)] += value
    return found.items()


def _processes(pids: Mapping[str, int]) -> dict[str, tuple[float, float]]:
    """Name of a process → (CPU seconds, bytes of memory), without processes that have ended. Empty on systems
    without /proc.
    """
    found = {}
    for name, pid in pids.items():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        fields = stat.rpartition(") ")[2].split()
        ticks, pages = int(fields[11]) + int(fields[12]), int(fields[21])
        found[name] = (ticks / os.sysconf("SC_CLK_TCK"), float(pages * os.sysconf("SC_PAGE_SIZE")))
    return found
