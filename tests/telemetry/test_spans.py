"""What a real OTLP collector receives: gen_ai names, true times, everything eventful, little else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from gateway.domain.backend import Backend
from gateway.domain.money.usage import Usage
from gateway.domain.record import Record
from gateway.settings.gateway import TelemetrySettings
from gateway.state.redis.connection import State
from gateway.telemetry.observe import Telemetry
from gateway.telemetry.spans import Exporter
from tests.support.waiting import until
from tests.telemetry.conftest import AT, LARGE, SMALL, Receiver, attempted, attributes, observed, record, served

Send = Callable[..., Awaitable[Telemetry]]


@pytest.fixture
def send(state: State, receiver: Receiver) -> Send:
    """Let these records end under the given sampling, and wait until the collector has them."""

    async def send(*records: Record, sample: float = 0.0, slow: float = 10.0) -> Telemetry:
        telemetry = Telemetry(TelemetrySettings(access_log=False, sample=sample, slow=slow), state)
        await telemetry.open()
        for one in records:
            with observed(telemetry, one):
                pass
        await telemetry.aclose()
        return telemetry

    return send


def of(receiver: Receiver, kind: Span.SpanKind.ValueType) -> list[Span]:
    return [span for span in receiver.spans if span.kind == kind]


async def test_a_request_is_a_span_under_the_conventions_names(receiver: Receiver, send: Send) -> None:
    seen = served(difficulty=0.25, cost_pico=1_500_000, finish="stop", trimmed_tokens=7)
    await send(seen, sample=1.0)
    (span,) = of(receiver, Span.SPAN_KIND_SERVER)
    assert span.name == "chat auto"
    assert attributes(span.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "_OTHER",
        "gen_ai.request.model": "auto",
        "gen_ai.response.model": "tiny",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.cache_read.input_tokens": 5,
        "gen_ai.usage.input_tokens": 15,
        "gen_ai.usage.output_tokens": 20,
        "thriftgate.backend": "small",
        "thriftgate.cache": "miss",
        "thriftgate.cost_usd": pytest.approx(1.5e-6),
        "thriftgate.difficulty": 0.25,
        "thriftgate.escalated": False,
        "thriftgate.request_id": seen.request_id,
        "thriftgate.team": "search",
        "thriftgate.trimmed_tokens": 7,
    }
    assert span.status.code == Status.STATUS_CODE_UNSET
    assert receiver.resource["service.name"] == "thriftgate"
    assert receiver.resource["service.version"]


async def test_each_attempt_is_a_child_with_its_true_times(receiver: Receiver, send: Send) -> None:
    seen = record(escalated=True)
    attempted(seen, SMALL, after_s=0.01, outcome="failed", error="backend_failed", usage=None, first_byte_at=None)
    attempted(seen, LARGE, after_s=0.5, usage=Usage(8, output_tokens=3))
    await send(seen)
    (parent,) = of(receiver, Span.SPAN_KIND_SERVER)
    first, second = of(receiver, Span.SPAN_KIND_CLIENT)
    assert {span.trace_id for span in receiver.spans} == {parent.trace_id}
    assert first.parent_span_id == second.parent_span_id == parent.span_id
    assert parent.start_time_unix_nano == pytest.approx(AT * 1e9, abs=1e3)
    assert first.start_time_unix_nano == pytest.approx((AT + 0.01) * 1e9, abs=1e3)
    assert second.start_time_unix_nano == pytest.approx((AT + 0.5) * 1e9, abs=1e3)
    assert second.end_time_unix_nano == pytest.approx((AT + 0.6) * 1e9, abs=1e3)
    assert [event.name for event in second.events] == ["first byte"]
    assert second.events[0].time_unix_nano == pytest.approx((AT + 0.54) * 1e9, abs=1e3)
    assert (first.status.code, first.status.message) == (Status.STATUS_CODE_ERROR, "backend_failed")
    assert not first.events
    assert attributes(first.attributes)["error.type"] == "backend_failed"
    assert attributes(second.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "_OTHER",
        "gen_ai.request.model": "big",
        "gen_ai.usage.input_tokens": 8,
        "gen_ai.usage.output_tokens": 3,
        "thriftgate.backend": "large",
        "thriftgate.outcome": "ok",
        "thriftgate.tier": "large",
    }


async def test_the_provider_is_whose_the_backend_is_and_not_the_dialect_that_it_speaks(
    receiver: Receiver, send: Send
) -> None:
    hosted = Backend(name="mistral", kind="openai", base_url="https://api.mistral.ai/v1", model="mistral-small-latest")
    await send(served(backend=hosted), sample=1.0)
    assert [attributes(span.attributes)["gen_ai.provider.name"] for span in receiver.spans] == ["mistral_ai"] * 2


async def test_parts_of_the_input_and_the_output_are_told_beside_the_sums(receiver: Receiver, send: Send) -> None:
    seen = record()
    used = Usage(10, 100, cache_write_5m_tokens=30, cache_write_1h_tokens=7, output_tokens=5, reasoning_tokens=40)
    attempted(seen, usage=used)
    await send(seen, sample=1.0)
    for span in receiver.spans:
        found = attributes(span.attributes)
        assert {name: value for name, value in found.items() if name.startswith("gen_ai.usage.")} == {
            "gen_ai.usage.input_tokens": 147,
            "gen_ai.usage.cache_read.input_tokens": 100,
            "gen_ai.usage.cache_write.input_tokens": 37,
            "gen_ai.usage.cache_creation.input_tokens": 37,
            "gen_ai.usage.output_tokens": 45,
            "gen_ai.usage.reasoning.output_tokens": 40,
        }


def slow(record: Record) -> Record:
    record.started -= 11.0  # `observe` measures from here
    return record


def tried_twice() -> Record:
    seen = record()
    attempted(seen, SMALL, outcome="failed", error="backend_failed")
    attempted(seen, SMALL)
    return seen


EVENTFUL: dict[str, Callable[[], Record]] = {
    "an error": lambda: served(status=502, error="all_backends_failed"),
    "an escalation": lambda: served(escalated=True),
    "a degraded part": lambda: served(degraded={"state"}),
    "a slow one": lambda: slow(served()),
    "a retry": tried_twice,
}


@pytest.mark.parametrize("event", EVENTFUL)
async def test_what_is_eventful_is_always_kept(receiver: Receiver, send: Send, event: str) -> None:
    await send(EVENTFUL[event](), sample=0.0)
    assert len(of(receiver, Span.SPAN_KIND_SERVER)) == 1


async def test_uneventful_requests_are_dropped_where_nothing_is_sampled(receiver: Receiver, send: Send) -> None:
    telemetry = await send(*(served() for _ in range(50)), sample=0.0)
    assert receiver.spans == []
    assert telemetry.stats()["spans"] == 0
    assert sum(telemetry.totals.requests.values()) == 50


async def test_a_share_of_the_uneventful_is_kept(receiver: Receiver, send: Send) -> None:
    await send(*(served() for _ in range(400)), sample=0.5)
    assert 120 < len(of(receiver, Span.SPAN_KIND_SERVER)) < 280


async def test_an_error_is_a_failed_span_that_says_which(receiver: Receiver, send: Send) -> None:
    await send(served(status=429, error="insufficient_quota"))
    (span,) = of(receiver, Span.SPAN_KIND_SERVER)
    assert (span.status.code, span.status.message) == (Status.STATUS_CODE_ERROR, "insufficient_quota")
    assert attributes(span.attributes)["error.type"] == "insufficient_quota"


async def test_neither_prompt_nor_key_nor_address_is_exported(receiver: Receiver, send: Send) -> None:
    seen = tried_twice()
    seen.note("anything", prompt="the purple elephant")
    await send(seen, sample=1.0)
    everything = str(receiver.traces) + str(receiver.metrics)
    assert "purple" not in everything
    assert "127.0.0.1:9" not in everything
    assert "key_1" not in everything


async def test_metrics_are_exported_too_and_workers_can_be_told_apart(receiver: Receiver, send: Send) -> None:
    await send(served("search"), served("other"), served("other"))
    requests = receiver.points("thriftgate.requests")
    assert requests[("backend", "small"), ("cache", "miss"), ("status", "200"), ("team", "other")] == 2
    tokens = receiver.points("gen_ai.client.token.usage")
    assert tokens[("gen_ai.token.type", "output"), ("thriftgate.backend", "small")] == 60
    resource = attributes(receiver.metrics[0].resource_metrics[0].resource.attributes)
    assert resource["service.name"] == "thriftgate"
    assert resource["service.instance.id"]


async def test_the_operators_name_for_the_service_is_respected(
    receiver: Receiver, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "gateway-eu")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=production")
    await send(served(), sample=1.0)
    assert receiver.resource["service.name"] == "gateway-eu"
    assert receiver.resource["deployment.environment.name"] == "production"


async def test_without_an_endpoint_nothing_is_opened(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    telemetry = Telemetry(TelemetrySettings(access_log=False, sample=1.0), state)
    await telemetry.open()
    with observed(telemetry, served()):
        pass
    assert telemetry.stats()["spans"] == 0
    await telemetry.aclose()


@pytest.mark.heavy
async def test_a_collector_that_is_away_holds_up_neither_requests_nor_the_end(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    telemetry = Telemetry(TelemetrySettings(access_log=False, sample=1.0), state)
    await telemetry.open()
    with observed(telemetry, served()):
        pass
    before = threading.active_count()
    async with asyncio.timeout(30):
        await telemetry.aclose()
    await until(lambda: threading.active_count() < before)  # none of its threads goes on trying


def test_an_exporter_that_was_never_opened_does_nothing() -> None:
    from gateway.telemetry.metrics import Totals

    exporter = Exporter(Totals(), {})
    exporter.emit(served())
    exporter.close()
    assert not exporter.is_open
    assert exporter.spans == 0
