"""Adds histograms to the OTLP export of OpenTelemetry's SDK. The gateway counts them without the SDK."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import Histogram as HistogramInstrument
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    ResourceMetrics,
)

from gateway.telemetry.latency import Instrument, Latencies
from gateway.telemetry.metrics import Labels

_UNKNOWN = cast("float", None)
"""The minimum and the maximum of a series. They are not measured, and OTLP allows to omit them."""


class HistogramExporter(OTLPMetricExporter):
    """Adds the histograms in `latencies` to each export. The SDK can read counters on demand, but not histograms."""

    def __init__(self, latencies: Latencies) -> None:
        super().__init__()
        self._latencies = latencies
        self._opened = self._sent_at = time.time_ns()
        self._sent: dict[tuple[str, Labels], tuple[list[int], float]] = {}
        wanted = self._preferred_temporality or {}
        self._temporality = wanted.get(HistogramInstrument, AggregationTemporality.CUMULATIVE)

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = None, **kwargs: Any
    ) -> MetricExportResult:
        """Export `metrics_data` with the histograms. Only one thread at a time calls this method, and never the thread
        of the event loop."""
        first, *others = metrics_data.resource_metrics
        whole = MetricsData([self._with_histograms(first), *others])
        return super().export(whole, timeout_millis, **kwargs)

    def _with_histograms(self, resource: ResourceMetrics) -> ResourceMetrics:
        """The metrics in `resource`, with the histograms in the same scope as the gateway's other metrics. A second
        scope of this name would replace the first.
        """
        now = time.time_ns()
        histograms = [metric for each in self._latencies.instruments if (metric := self._metric(each, now))]
        self._sent_at = now
        scope, *others = resource.scope_metrics
        return replace(resource, scope_metrics=[replace(scope, metrics=[*scope.metrics, *histograms]), *others])

    def _metric(self, instrument: Instrument, now: int) -> Metric | None:
        points = list(self._points(instrument, now))
        if not points:
            return None
        return Metric(instrument.name, instrument.description, "s", Histogram(points, self._temporality))

    def _points(self, instrument: Instrument, now: int) -> Iterable[HistogramDataPoint]:
        delta = self._temporality is AggregationTemporality.DELTA
        for key, histogram in list(instrument.series.items()):
            counts, total = list(histogram.counts), histogram.sum
            if delta:
                place = (instrument.name, key)
                before, total_before = self._sent.get(place, ([0] * len(counts), 0.0))
                self._sent[place] = (counts, total)
                counts, total = [new - old for new, old in zip(counts, before, strict=True)], total - total_before
            if not any(counts):
                continue
            yield HistogramDataPoint(
                attributes={name: value for name, value in zip(instrument.labels, key, strict=True) if value},
                start_time_unix_nano=self._sent_at if delta else self._opened,
                time_unix_nano=now,
                count=sum(counts),
                sum=total,
                bucket_counts=counts,
                explicit_bounds=histogram.bounds,
                min=_UNKNOWN,
                max=_UNKNOWN,
            )
