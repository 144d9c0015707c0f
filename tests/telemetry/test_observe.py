"""Around a request: whatever ends it is on its record, in the figures, in the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from gateway.errors import AllBackendsFailed, InvalidKey, LimitExceeded
from gateway.settings.gateway import TelemetrySettings
from gateway.state.redis.connection import State
from gateway.telemetry.observe import Telemetry
from tests.support.waiting import until
from tests.telemetry.conftest import observed, served


@pytest.fixture
async def telemetry(state: State, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Telemetry]:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    opened = Telemetry(TelemetrySettings(), state)
    await opened.open()
    yield opened
    await opened.aclose()


@pytest.mark.parametrize(
    ("error", "status", "code", "what"),
    [
        (LimitExceeded("slow down"), 429, "rate_limit_exceeded", "refused"),
        (AllBackendsFailed(()), 503, "all_backends_failed", "failed"),
        (ZeroDivisionError("x"), 500, "ZeroDivisionError", None),
        (asyncio.CancelledError(), 499, "client_closed_request", None),
    ],
)
async def test_what_ends_a_request_is_on_its_record(
    telemetry: Telemetry, error: BaseException, status: int, code: str, what: str | None
) -> None:
    seen, busy = served(), 0

    def serve() -> None:
        nonlocal busy
        with observed(telemetry, seen):
            busy = telemetry.totals.in_flight
            raise error

    with pytest.raises(type(error)):
        serve()
    assert busy == 1
    assert telemetry.totals.in_flight == 0
    assert (seen.status, seen.error) == (status, code)
    assert [note["what"] for note in seen.notes] == ([what] if what else [])
    assert telemetry.totals.requests == {("search", "small", "miss", str(status)): 1}


async def test_a_request_that_ends_well_keeps_its_status_and_gets_its_duration(telemetry: Telemetry) -> None:
    seen = served(duration_ms=None)
    with observed(telemetry, seen):
        await asyncio.sleep(0.002)
    assert (seen.status, seen.error) == (200, "")
    assert seen.duration_ms is not None
    assert seen.duration_ms >= 2


async def test_a_refusal_before_the_tenant_is_known_is_counted_by_its_code(telemetry: Telemetry) -> None:
    telemetry.refused("req_1", InvalidKey("no"), "/v1/chat/completions")
    assert telemetry.totals.refused == {("invalid_api_key",): 1}
    assert b'thriftgate_refused_total{code="invalid_api_key"} 1.0' in await telemetry.exposition()


async def test_log_lines_and_flight_records_are_written_soon_after(
    telemetry: Telemetry, state: State, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = served(escalated=True)
    with observed(telemetry, seen):
        pass
    written: list[str] = []

    def logged() -> bool:
        written.append(capsys.readouterr().out)
        return seen.request_id in written[-1]

    await until(logged)
    assert orjson.loads(written[-1])["team"] == "search"
    elsewhere = Telemetry(TelemetrySettings(access_log=False), state)
    assert await elsewhere.flight(seen.request_id, "search") is not None


async def test_what_waits_is_written_at_the_end(state: State, capsys: pytest.CaptureFixture[str]) -> None:
    telemetry = Telemetry(TelemetrySettings(), state)
    await telemetry.open()
    seen = served(escalated=True)
    with observed(telemetry, seen):
        pass
    await telemetry.aclose()
    assert seen.request_id in capsys.readouterr().out
    assert await Telemetry(TelemetrySettings(), state).flight(seen.request_id, "search") is not None


async def test_one_odd_record_does_not_silence_those_that_follow(
    telemetry: Telemetry, capsys: pytest.CaptureFixture[str]
) -> None:
    odd: Any = served()
    odd.model = object()
    with observed(telemetry, odd):
        pass
    await asyncio.sleep(0.3)
    fine = served()
    with observed(telemetry, fine):
        pass
    await until(lambda: fine.request_id in capsys.readouterr().out)


async def test_a_rooms_figures_are_shown(telemetry: Telemetry) -> None:
    telemetry.watch("cache", lambda: {"entries": 7})
    assert b'thriftgate_room{figure="entries",room="cache"} 7.0' in await telemetry.exposition()
