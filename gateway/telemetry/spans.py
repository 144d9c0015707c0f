"""Exports metrics and the spans of finished requests through OpenTelemetry."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping
from threading import Lock, Thread
from typing import TYPE_CHECKING

from gateway.domain.record import Record
from gateway.telemetry import attributes as names
from gateway.telemetry.latency import Latencies
from gateway.telemetry.metrics import COUNTERS, Stats, Totals, figures
from gateway.telemetry.trace_parent import read_parent

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider

log = logging.getLogger(__name__)

CLOSE_S = 3.0
MOST_WAITING = 10_000
"""Maximum finished requests that wait for export. When more are waiting, the oldest are dropped."""
UNNAMED = "unknown_service"
"""The SDK's service name if the environment does not set one."""


class Exporter:
    """Exports by OTLP over HTTP, if OTEL_EXPORTER_OTLP_ENDPOINT is set. Threads of the SDK send the data."""

    def __init__(self, totals: Totals, parts: Mapping[str, Stats]) -> None:
        self._totals = totals
        self._parts = parts
        self.latencies = Latencies()
        self._traces: TracerProvider | None = None
        self._metrics: MeterProvider | None = None
        self._senders: list[OTLPSpanExporter | OTLPMetricExporter] = []
        self.is_open = False
        self.spans = 0
        self.waiting: deque[Record] = deque(maxlen=MOST_WAITING)
        self._flushing = Lock()

    def open(self, version: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from gateway.telemetry.histogram_export import HistogramExporter

        resource = Resource.create({"service.version": version})
        if str(resource.attributes.get("service.name", UNNAMED)).startswith(UNNAMED):  # no OTEL_SERVICE_NAME
            resource = resource.merge(Resource({"service.name": "thriftgate"}))
        self._traces = TracerProvider(resource=resource, shutdown_on_exit=False)
        spans, metrics = OTLPSpanExporter(), HistogramExporter(self.latencies)
        self._senders = [spans, metrics]
        self._traces.add_span_processor(BatchSpanProcessor(spans))
        self._metrics = MeterProvider(
            resource=resource,
            metric_readers=[PeriodicExportingMetricReader(metrics)],
            shutdown_on_exit=False,
        )
        self._observe()
        self.is_open = True

    def _observe(self) -> None:
        from opentelemetry.metrics import Observation

        assert self._metrics is not None
        meter = self._metrics.get_meter("thriftgate")
        for name, attribute, text, labels, factor in COUNTERS:

            def read(
                options: CallbackOptions,
                attribute: str = attribute,
                labels: tuple[str, ...] = labels,
                factor: float = factor,
            ) -> Iterable[Observation]:
                for values, total in list(getattr(self._totals, attribute).items()):
                    yield Observation(total * factor, dict(zip(labels, values, strict=True)))

            meter.create_observable_counter(name.replace("_", ".", 1), [read], description=text)

        def tokens(options: CallbackOptions) -> Iterable[Observation]:
            for (_, backend, kind), total in list(self._totals.tokens.items()):
                yield Observation(total, {names.BACKEND: backend, names.TOKEN_TYPE: kind})

        meter.create_observable_counter(names.TOKEN_USAGE, [tokens], unit="{token}")

        def parts(options: CallbackOptions) -> Iterable[Observation]:
            for part, figure, value in figures(self._parts):
                yield Observation(value, {"room": part, "figure": figure})

        meter.create_observable_gauge("thriftgate.room", [parts], description="Figures of each part.")

    def emit(self, record: Record) -> None:
        """Queue the spans of a finished request. The next `flush` creates them."""
        if self.is_open:
            self.waiting.append(record)

    def flush(self) -> None:
        """Create the spans of the waiting requests. Call it in a thread, because the SDK takes about 0.1 ms per
        span."""
        with self._flushing:
            for _ in range(len(self.waiting)):
                record = self.waiting.popleft()
                try:
                    self._emit(record)
                except Exception:
                    log.exception("request %s is missing from the traces", record.request_id)

    def _emit(self, record: Record) -> None:
        """Create a span for the request and one child span for each attempt, with the times that were measured."""
        from opentelemetry import trace
        from opentelemetry.trace import SpanKind, Status, StatusCode

        assert self._traces is not None
        tracer = self._traces.get_tracer("thriftgate")
        end, asked = record.started_at + (record.duration_ms or 0.0) / 1000, names.operation(record.dialect)
        span = tracer.start_span(
            f"{asked} {record.model}",
            context=_parent_of(record),
            kind=SpanKind.SERVER,
            start_time=_nanoseconds(record.started_at),
            attributes=names.of_request(record),
        )
        if record.error:
            span.set_status(Status(StatusCode.ERROR, record.error))
        parent = trace.set_span_in_context(span)
        for attempt in record.attempts:
            child = tracer.start_span(
                f"{asked} {attempt.backend.model}",
                context=parent,
                kind=SpanKind.CLIENT,
                start_time=_nanoseconds(attempt.started_at),
                attributes=names.of_attempt(attempt, asked),
            )
            if attempt.first_byte_at is not None:
                child.add_event("first byte", timestamp=_nanoseconds(attempt.first_byte_at))
            if attempt.error:
                child.set_status(Status(StatusCode.ERROR, attempt.error))
            child.end(_nanoseconds(attempt.ended_at or end))
        span.end(_nanoseconds(end))
        self.spans += 1 + len(record.attempts)

    def close(self) -> None:
        """Send the remaining spans and metrics. Blocks for up to `CLOSE_S` seconds, so call it in a thread."""
        self.flush()
        providers = [provider for provider in (self._traces, self._metrics) if provider is not None]
        # Without this, the SDK retries for half a minute if no server listens.
        ending = [Thread(target=provider.shutdown, daemon=True) for provider in providers]
        until = time.monotonic() + CLOSE_S
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join(max(0.0, until - time.monotonic()))
        if any(thread.is_alive() for thread in ending):
            log.warning("the OTLP endpoint does not accept the last spans and metrics; they are lost")
            for sender in self._senders:
                sender.shutdown()


def _parent_of(record: Record) -> Context | None:
    """The client's span, as the parent of the request's span; None without trace headers. The parent counts as
    sampled.
    """
    parent = read_parent(record.trace) if record.trace else None
    if parent is None:
        return None
    from opentelemetry import trace
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

    state = TraceState.from_header([parent.state]) if parent.state else None
    flags = TraceFlags(TraceFlags.SAMPLED)
    context = SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=flags, trace_state=state)
    return trace.set_span_in_context(NonRecordingSpan(context))


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
