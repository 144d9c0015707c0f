"""One JSON line per request that anyone may read: no prompt, no key."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.telemetry.access import AccessLog, readable
from tests.telemetry.conftest import LARGE, SMALL, attempted, record, served


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_request_is_one_line_with_what_was_decided(capsys: pytest.CaptureFixture[str]) -> None:
    log = AccessLog(enabled=True)
    seen = record(difficulty=0.4, escalated=True, trimmed_tokens=3, cost_pico=8_000_000, degraded={"state"})
    attempted(seen, SMALL, outcome="escalated")
    attempted(seen, LARGE)
    log.request(seen)
    log.flush()
    (line,) = lines(capsys)
    assert line == {
        "at": 1_800_000_000.0, "request": seen.request_id, "team": "search", "key": "key_1", "model": "auto",
        "backend": "large", "status": 200, "error": None, "stream": False, "cache": "miss", "difficulty": 0.4,
        "attempts": 2, "escalated": True, "in": 15, "out": 20, "trimmed": 3, "cost_pico": 8_000_000,
        "first_byte_ms": None, "ms": 120.0, "degraded": ["state"],
    }  # fmt: skip


def test_neither_prompt_nor_key_can_be_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    log = AccessLog(enabled=True)
    seen = served(tags={"t": "x"})
    seen.note("anything", prompt="the purple elephant")
    log.request(seen)
    log.refusal("req_1", 401, "invalid_api_key", "/v1/chat/completions")
    log.flush()
    written = capsys.readouterr().out
    assert "purple" not in written
    assert "tg-" not in written


def test_a_refusal_without_a_tenant_is_a_short_line(capsys: pytest.CaptureFixture[str]) -> None:
    log = AccessLog(enabled=True)
    log.refusal("req_1", 401, "invalid_api_key", "/" + "x" * 500)
    log.flush()
    (line,) = lines(capsys)
    assert (line["request"], line["status"], line["error"]) == ("req_1", 401, "invalid_api_key")
    assert abs(line["at"] - time.time()) < 60
    assert len(line["path"]) == 200


def test_a_line_break_in_a_name_does_not_make_a_second_line(capsys: pytest.CaptureFixture[str]) -> None:
    log = AccessLog(enabled=True)
    seen = served()
    seen.model = 'x"\n{"team": "forged"}'
    log.request(seen)
    log.flush()
    (line,) = lines(capsys)
    assert line["model"] == seen.model


def test_lines_wait_until_they_are_flushed_and_are_written_once(capsys: pytest.CaptureFixture[str]) -> None:
    log = AccessLog(enabled=True)
    for _ in range(3):
        log.request(served())
    assert (len(log), lines(capsys)) == (3, [])
    log.flush()
    log.flush()
    assert (len(log), len(lines(capsys))) == (0, 3)


def test_switched_off_it_keeps_nothing() -> None:
    log = AccessLog(enabled=False)
    log.request(served())
    log.refusal("req_1", 401, "invalid_api_key", "/")
    assert len(log) == 0


def test_what_waits_is_bounded() -> None:
    log = AccessLog(enabled=True)
    for _ in range(100_010):
        log.refusal("req_1", 401, "invalid_api_key", "/")
    assert len(log) == 100_000


def test_a_full_disk_costs_lines_but_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    log = AccessLog(enabled=True)
    log.request(served())
    full = Path("/dev/full").open("w")  # noqa: SIM115 - closing it fails, too
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        log.flush()
    with pytest.raises(OSError, match="No space"):
        full.close()
    log.request(served())
    log.flush()
    assert len(lines(capsys)) == 1
    assert "1 lines are lost" in caplog.text


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_line_is_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", screen := Screen())
    log = AccessLog(enabled=True)
    seen = record(cost_pico=8_000_000)
    attempted(seen, LARGE)
    log.request(seen)
    log.refusal("req_1", 401, "invalid_api_key", "/v1/\x1b[31m")
    log.flush()
    first, second = screen.getvalue().splitlines()
    for word in ("200", "search", "auto → large", "$0.000008", "120 ms", seen.request_id):
        assert word in first
    assert "401 invalid_api_key /v1/" in second
    assert "\x1b" not in second


def test_a_cached_answer_and_an_error_are_named() -> None:
    line = {
        "at": 0.0, "request": "req_1", "team": "t", "model": "auto", "backend": None, "status": 200, "error": None,
        "cache": "semantic", "in": 0, "out": 0, "cost_pico": 0, "ms": None,
    }  # fmt: skip
    assert "auto → cache semantic" in readable(line)
    failed = readable({**line, "cache": "miss", "status": 503, "error": "overloaded", "cost_pico": None})
    assert "503  t  auto → no backend  overloaded" in failed
    assert "cost" not in failed
    unpriced = readable({**line, "cache": "miss", "backend": "large", "cost_pico": None})
    assert "cost unknown" in unpriced
    assert "$0.00007 " in readable({**line, "backend": "large", "cost_pico": 70_000_000})
