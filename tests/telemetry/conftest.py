"""Finished records, and a receiver of what OpenTelemetry's own exporter sends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint, Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from gateway.domain.backend import Backend
from gateway.domain.money.usage import Usage
from gateway.domain.policy import Policy
from gateway.domain.record import Attempt, Record, new_request_id
from gateway.domain.tenant import Key, Tenant
from gateway.telemetry.observe import Telemetry

SMALL = Backend(name="small", kind="openai", base_url="http://127.0.0.1:9/v1", model="tiny", tier="small")
LARGE = Backend(name="large", kind="anthropic", base_url="http://127.0.0.1:9/v1", model="big", tier="large")
SIMULATED = Backend(name="pretend", kind="simulated", model="pretend", tier="large")
AT = 1_800_000_000.0


def tenant(team: str = "search", key: str = "key_1") -> Tenant:
    return Tenant(Key(key, team), Policy(team=team))


def record(team: str = "search", key: str = "key_1", **facts: Any) -> Record:
    """Answered in 120 ms, unless told otherwise."""
    found = Record(new_request_id(), tenant(team, key), "auto", "openai_chat", False)
    for name, value in {"cache": "miss", "started_at": AT, "duration_ms": 120.0, **facts}.items():
        setattr(found, name, value)
    return found


def attempted(record: Record, backend: Backend = SMALL, *, after_s: float = 0.01, **facts: Any) -> Attempt:
    """An attempt that began `after_s` after the request and took 100 ms, its first byte after 40."""
    attempt = record.attempt(backend)
    attempt.started_at = record.started_at + after_s
    known: dict[str, Any] = {
        "outcome": "ok",
        "usage": Usage(10, cached_tokens=5, output_tokens=20),
        "cost_pico": 1_000_000,
        "first_byte_at": attempt.started_at + 0.04,
        "ended_at": attempt.started_at + 0.1,
        **facts,
    }
    for name, value in known.items():
        setattr(attempt, name, value)
    return attempt


def served(team: str = "search", backend: Backend = SMALL, **facts: Any) -> Record:
    seen = record(team, **facts)
    attempted(seen, backend)
    return seen


@contextmanager
def observed(telemetry: Telemetry, record: Record) -> Iterator[None]:
    """A whole request, as the pipeline tells of it."""
    telemetry.begin(record)
    try:
        yield
    except BaseException as error:
        telemetry.end(record, error)
        raise
    telemetry.end(record, None)


class Receiver:
    """An OTLP collector over HTTP: what was posted, decoded."""

    def __init__(self) -> None:
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.unknown: list[str] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                assert self.headers["content-type"] == "application/x-protobuf"
                if self.path == "/v1/traces":
                    receiver.traces.append(ExportTraceServiceRequest.FromString(body))
                elif self.path == "/v1/metrics":
                    receiver.metrics.append(ExportMetricsServiceRequest.FromString(body))
                else:
                    receiver.unknown.append(self.path)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for post in self.traces
            for group in post.resource_spans
            for scope in group.scope_spans
            for span in scope.spans
        ]

    @property
    def resource(self) -> dict[str, Any]:
        return attributes(self.traces[0].resource_spans[0].resource.attributes)

    def points(self, name: str) -> dict[tuple[tuple[str, Any], ...], float]:
        """The last value of every series of a metric, by its sorted attributes."""
        found = {}
        for metric in self.metrics_named(name):
            for point in (*metric.sum.data_points, *metric.gauge.data_points):
                value = point.as_double if point.HasField("as_double") else point.as_int
                found[tuple(sorted(attributes(point.attributes).items()))] = value
        return found

    def histograms(self, name: str) -> dict[tuple[tuple[str, Any], ...], HistogramDataPoint]:
        """The last point of every series of a histogram, by its sorted attributes."""
        return {
            tuple(sorted(attributes(point.attributes).items())): point
            for metric in self.metrics_named(name)
            for point in metric.histogram.data_points
        }

    def metrics_named(self, name: str) -> list[Metric]:
        """As they were posted, one after the other."""
        return [
            metric
            for post in self.metrics
            for group in post.resource_metrics
            for scope in group.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        ]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair) for pair in pairs}


def _value(pair: KeyValue) -> Any:
    kind = pair.value.WhichOneof("value")
    if kind == "array_value":
        return [item.string_value for item in pair.value.array_value.values]
    return getattr(pair.value, str(kind))


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """Where OTEL_EXPORTER_OTLP_ENDPOINT points."""
    receiver = Receiver()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    yield receiver
    receiver.close()
