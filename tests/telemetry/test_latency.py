"""Latencies as an OTLP collector receives them: histograms with the conventions' names, bounds and attributes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, HistogramDataPoint
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from gateway.domain.backend import Backend
from gateway.domain.record import Record
from gateway.settings.gateway import TelemetrySettings
from gateway.state.redis.connection import State
from gateway.telemetry.histogram_export import HistogramExporter
from gateway.telemetry.latency import DURATIONS, FIRST_TOKENS, MOST_MODELS, Latencies
from gateway.telemetry.observe import Telemetry
from tests.telemetry.conftest import LARGE, SMALL, Receiver, attempted, observed, record, served

Send = Callable[..., Awaitable[Telemetry]]
HOSTED = Backend(name="fast", kind="openai", base_url="https://api.groq.com/openai/v1", model="gpt-oss")


@pytest.fixture
def send(state: State, receiver: Receiver) -> Send:
    """Let these records end, none of which is sampled, and wait until the collector has their figures."""

    async def send(*records: Record) -> Telemetry:
        telemetry = Telemetry(TelemetrySettings(access_log=False, sample=0.0), state)
        await telemetry.open()
        for one in records:
            with observed(telemetry, one):
                one.started -= 0.3  # `observe` measures from here
        await telemetry.aclose()
        return telemetry

    return send


def streamed() -> Record:
    """A stream of `HOSTED` whose first event comes after 50 ms and whose first token after 90."""
    seen = record(stream=True, first_byte_ms=60.0)
    attempt = attempted(seen, HOSTED)
    attempt.spoke_at = seen.started_at + 0.09
    return seen


def the_one(points: dict[tuple[tuple[str, object], ...], HistogramDataPoint], **where: str) -> HistogramDataPoint:
    """The point with these attributes and no others; `a__b` stands for `a.b`."""
    return points[tuple(sorted((name.replace("__", "."), value) for name, value in where.items()))]


OF_STREAM = {
    "gen_ai__operation__name": "chat",
    "gen_ai__provider__name": "groq",
    "gen_ai__response__model": "gpt-oss",
}


async def test_a_requests_duration_and_first_token_are_the_servers(receiver: Receiver, send: Send) -> None:
    await send(streamed(), streamed())
    of_request = {**OF_STREAM, "gen_ai__request__model": "auto", "thriftgate__cache": "miss"}
    duration = the_one(receiver.histograms("gen_ai.server.request.duration"), **of_request)
    assert tuple(duration.explicit_bounds) == DURATIONS
    assert (duration.count, sum(duration.bucket_counts)) == (2, 2)
    assert duration.sum >= 0.6
    assert not duration.HasField("min")
    first = the_one(receiver.histograms("gen_ai.server.time_to_first_token"), **of_request)
    assert tuple(first.explicit_bounds) == FIRST_TOKENS
    assert first.sum == pytest.approx(0.18)
    assert first.bucket_counts[7] == 2  # from 0.08 to 0.1
    (metric,) = receiver.metrics_named("gen_ai.server.request.duration")
    assert metric.unit == "s"
    assert metric.histogram.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert 0 < duration.start_time_unix_nano <= duration.time_unix_nano


async def test_a_calls_duration_and_first_chunk_are_the_clients(receiver: Receiver, send: Send) -> None:
    await send(streamed())
    of_call = {**OF_STREAM, "gen_ai__request__model": "gpt-oss", "thriftgate__backend": "fast"}
    duration = the_one(receiver.histograms("gen_ai.client.operation.duration"), **of_call)
    assert duration.sum == pytest.approx(0.1)
    first = the_one(receiver.histograms("gen_ai.client.operation.time_to_first_chunk"), **of_call)
    assert first.sum == pytest.approx(0.04)
    assert tuple(first.explicit_bounds) == DURATIONS


async def test_a_failed_call_has_its_error_and_no_answering_model(receiver: Receiver, send: Send) -> None:
    seen = record()
    attempted(seen, SMALL, outcome="failed", error="backend_failed")
    attempted(seen, LARGE, ended_at=None)
    await send(seen)
    points = receiver.histograms("gen_ai.client.operation.duration")
    assert len(points) == 1
    assert the_one(
        points,
        gen_ai__operation__name="chat",
        gen_ai__provider__name="_OTHER",
        gen_ai__request__model="tiny",
        error__type="backend_failed",
        thriftgate__backend="small",
    )


async def test_a_plain_answer_has_no_first_token(receiver: Receiver, send: Send) -> None:
    await send(served(first_byte_ms=100.0))
    assert receiver.histograms("gen_ai.server.request.duration")
    assert not receiver.histograms("gen_ai.server.time_to_first_token")
    assert not receiver.histograms("gen_ai.client.operation.time_to_first_chunk")


async def test_a_hit_has_the_caches_word_and_no_provider(receiver: Receiver, send: Send) -> None:
    await send(record(cache="exact", stream=True, first_byte_ms=3.0))
    (name,) = receiver.histograms("gen_ai.server.time_to_first_token")
    assert dict(name) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "auto",
        "thriftgate.cache": "exact",
    }


async def test_a_refused_requests_model_may_be_any_text_and_is_left_out(receiver: Receiver, send: Send) -> None:
    await send(record(model="my secret plans", error="unknown_model", status=404, cache="off"))
    (name,) = receiver.histograms("gen_ai.server.request.duration")
    assert dict(name) == {
        "gen_ai.operation.name": "chat",
        "error.type": "unknown_model",
        "thriftgate.cache": "off",
    }
    assert "my secret plans" not in str(receiver.metrics)


def test_more_models_than_a_collector_should_keep_are_told_together() -> None:
    latencies = Latencies()
    for number in range(MOST_MODELS + 5):
        latencies.add(served(model=f"gpt-{number}"))
    latencies.add(served(model="gpt-0"))
    models = [key[2] for key in latencies.requests]
    assert len(models) == MOST_MODELS + 1
    assert sum(latencies.requests[key].counts[4] for key in latencies.requests if key[2] == "_OTHER") == 5


def test_each_export_has_only_what_is_new_where_deltas_are_asked_for(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    latencies = Latencies()
    reader = PeriodicExportingMetricReader(HistogramExporter(latencies))
    provider = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    provider.get_meter("thriftgate").create_counter("any").add(1)
    latencies.add(served(duration_ms=100.0))
    provider.force_flush()
    latencies.add(served(duration_ms=300.0))
    latencies.add(served("other", duration_ms=300.0))
    provider.get_meter("thriftgate").create_counter("any").add(1)
    provider.shutdown()
    first, second = receiver.metrics_named("gen_ai.server.request.duration")
    assert first.histogram.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    (before,), (after,) = first.histogram.data_points, second.histogram.data_points
    assert (before.count, before.sum) == (1, pytest.approx(0.1))
    assert (after.count, after.sum) == (2, pytest.approx(0.6))
    assert after.start_time_unix_nano == before.time_unix_nano


async def test_without_an_endpoint_nothing_is_counted(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    telemetry = Telemetry(TelemetrySettings(access_log=False), state)
    await telemetry.open()
    with observed(telemetry, streamed()):
        pass
    assert not telemetry._exporter.latencies.requests
    await telemetry.aclose()
