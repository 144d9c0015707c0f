"""Billing a file of requests, from the command line and as values."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from gateway.cli.main import cli
from gateway.context.bill.price_file import load_prices, price_of
from gateway.context.bill.sent import bill_sent
from gateway.context.bill.sessions import Session, read_sessions
from gateway.domain.money.price import Price

MARK = {"type": "ephemeral"}


def user(words: int) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": "word " * words}]}


ROW = {
    "id": "s1",
    "api": "anthropic",
    "model": "claude-sonnet-4-5",
    "hidden_tokens": 2000,
    "turns": [
        {
            "t": 0,
            "rt": 5,
            "reset": "start",
            "append": [user(10)],
            "out": 3,
            "usage": {"cache_write": 2012, "w1h": 2012},
        },
        {"t": 60, "rt": 65, "append": [{"role": "assistant", "content": "yes"}, user(20)], "out": 4},
        {"t": 70, "rt": 75, "reset": "compact", "append": [user(5)], "out": 1},
    ],
}


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    path = tmp_path / "sessions.jsonl.xz"
    path.write_bytes(lzma.compress(orjson.dumps(ROW) + b"\n"))
    return path


def marked(body: dict[str, Any]) -> dict[str, Any]:
    last = body["messages"][-1]
    blocks = [*last["content"][:-1], {**last["content"][-1], "cache_control": MARK}]
    return {**body, "messages": [*body["messages"][:-1], {**last, "content": blocks}]}


def test_a_session_sends_all_messages_since_the_last_reset(sessions: Path) -> None:
    (session,) = read_sessions(sessions)
    requests = list(session.requests())
    assert [len(request.body["messages"]) for request in requests] == [1, 3, 1]
    assert [request.reset for request in requests] == [True, False, True]
    assert requests[1].at == 60
    assert requests[1].output_tokens == 4


def test_rows_are_billed_with_their_sessions_times_and_own_calls(sessions: Path) -> None:
    (session,) = read_sessions(sessions)
    bodies = [marked(request.body) for request in session.requests()]
    rows: list[dict[str, Any]] = [
        {"id": "s1", "turn": 0, "body": bodies[0], "own_usd": 0.5},
        {"id": "s1", "at": 50, "body": {**bodies[0], "max_tokens": 1}},
        {"id": "s1", "turn": 1, "body": bodies[1]},
    ]
    price = Price(10, 100, 1, 12, 20)
    first, alive, second = bill_sent(rows, {"s1": session}, lambda _: price, lambda text: len(text.split()))
    assert (first.usage.cache_write_5m_tokens, first.usage.output_tokens) == (2012, 3)
    assert first.total_pico == 2012 * 12 + 3 * 100 + 5 * 10**11
    assert (alive.turn, alive.usage.cached_tokens, alive.usage.output_tokens) == (None, 2012, 1)
    assert (second.usage.cached_tokens, second.usage.cache_write_5m_tokens) == (2012, 25)


def test_an_unknown_session_turn_or_price_is_an_error() -> None:
    session = Session("s1", "", "anthropic", "claude-x", 0, ROW)
    body = next(session.requests()).body
    price = Price(10, 100)
    for row, known, words in (
        ({"id": "s2", "turn": 0, "body": body}, {"claude-x": price}, "s2: no such session"),
        ({"id": "s1", "turn": 9, "body": body}, {"claude-x": price}, "s1: has no turn 9"),
        ({"id": "s1", "turn": 0, "body": body}, {}, "claude-x: no price"),
    ):
        with pytest.raises(ValueError, match=words):
            list(bill_sent([row], {"s1": session}, known.get, len))


def test_prices_are_found_by_name_with_the_usual_factors_for_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_bytes(orjson.dumps({"claude-a": {"input": 4, "output": 20}, "gpt-4o": {"input": 2, "output": 8}}))
    prices = load_prices(path)
    dated = price_of(prices, "anthropic/claude-a-20250929")
    assert dated is not None
    assert (dated.cached_input, dated.cache_write_5m, dated.cache_write_1h) == (400_000, 5_000_000, 8_000_000)
    assert prices["gpt-4o"].cached_input == 1_000_000
    path.write_bytes(orjson.dumps({"models": [{"model": "m", "input": 1, "output": 2, "cache_read": 0.5}]}))
    assert load_prices(path)["m"].cached_input == 500_000
    for wrong, words in (([], "must be an object"), ({}, "no model"), ({"m": {"input": 1}}, "m: needs input")):
        path.write_bytes(orjson.dumps(wrong))
        with pytest.raises(ValueError, match=words):
            load_prices(path)


def test_the_command_prints_dollars_and_compares_with_the_reported_usage(sessions: Path, tmp_path: Path) -> None:
    (session,) = read_sessions(sessions)
    sent, prices = tmp_path / "sent.jsonl", tmp_path / "prices.json"
    rows = [{"id": "s1", "turn": each.turn, "body": each.body, "own_usd": 0} for each in session.requests()]
    sent.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    prices.write_bytes(orjson.dumps({"claude-sonnet-4-5": {"input": 3, "output": 15}}))
    given = ["context", "bill", str(sent), "--sessions", str(sessions)]
    run = CliRunner().invoke(cli, [*given, "--prices", str(prices), "--json"])
    assert run.exit_code == 0, run.output
    found = orjson.loads(run.stdout)
    assert found["requests"] == 3
    assert found["cached_tokens"] == 0
    assert found["reported_requests"] == 1
    assert found["reported_input_tokens"] == 2012
    assert float(found["usd"]) == pytest.approx((found["input_tokens"] * 3 + found["output_tokens"] * 15) / 1e6)
    shown = CliRunner().invoke(cli, given)
    assert shown.exit_code == 0
    assert "USD in all" in shown.output
    sent.write_bytes(orjson.dumps({"id": "other", "turn": 0, "body": {}}))
    assert "no such session" in CliRunner().invoke(cli, given).output
