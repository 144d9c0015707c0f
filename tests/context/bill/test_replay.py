"""Recorded sessions sent through the gateway's own planning and translation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from click.testing import CliRunner

from gateway.cli.main import cli

PRICES = {"claude-sonnet-4-5": {"input": 3, "output": 15}, "gpt-4o": {"input": 2, "output": 8}}


def messages(words: int, answer: str = "") -> list[dict[str, Any]]:
    said = [{"role": "user", "content": "word " * words}]
    return [{"role": "assistant", "content": answer}, *said] if answer else said


def session(name: str, api: str, model: str, hidden: int = 30_000) -> bytes:
    turns = [
        {"t": 0, "append": messages(50), "out": 5, "reset": "start"},
        *({"t": 20 * number, "append": messages(10, "yes"), "out": 5} for number in range(1, 11)),
        {"t": 1700, "append": messages(10, "so"), "out": 5},
    ]
    return orjson.dumps({"id": name, "api": api, "model": model, "hidden_tokens": hidden, "turns": turns})


def run(*given: str) -> dict[str, Any]:
    done = CliRunner().invoke(cli, ["context", *given, "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = orjson.loads(done.stdout)
    return found


def test_what_is_sent_is_marked_and_billed_alike_by_replay_and_bill(tmp_path: Path) -> None:
    sessions, prices, out = tmp_path / "sessions.jsonl", tmp_path / "prices.json", tmp_path / "sent.jsonl"
    sessions.write_bytes(
        b"\n".join(
            [
                session("first", "anthropic", "claude-sonnet-4-5"),
                session("a", "anthropic", "claude-sonnet-4-5"),
                session("b", "openai", "gpt-4o", 0),
            ]
        )
    )
    prices.write_bytes(orjson.dumps(PRICES))
    replayed = run("replay", str(sessions), "--prices", str(prices), "--out", str(out))
    assert replayed == run("bill", str(out), "--sessions", str(sessions), "--prices", str(prices))
    rows = [orjson.loads(line) for line in out.read_bytes().splitlines()]
    assert [(row["id"], row["turn"], row["own_usd"]) for row in rows] == [
        (name, turn, 0.0) for name in ("first", "a", "b") for turn in range(12)
    ]
    assert b"cache_control" not in b"".join(map(orjson.dumps, (row for row in rows if row["id"] == "b")))
    unknown, kept, short = replayed["sessions"]
    assert unknown["cache_write_1h_tokens"] == 0  # no pause was seen before its own
    assert kept["input_tokens"] == 0
    assert kept["cached_tokens"] > 11 * 30_000  # the pause of 25 minutes too was within the hour of a mark
    assert 0 < kept["cache_write_1h_tokens"] < 10  # only the first of the two new messages
    assert short["cached_tokens"] == 0  # too short to be cached


def test_a_prompt_is_kept_in_the_pauses_of_a_session_if_wanted(tmp_path: Path) -> None:
    sessions, out = tmp_path / "sessions.jsonl", tmp_path / "sent.jsonl"
    turns = [
        {"t": 0, "append": messages(50), "out": 5, "reset": "start"},
        {"t": 400, "append": messages(9000, "yes"), "out": 5},
        {"t": 450, "append": messages(9000, "no"), "out": 5},
    ]
    row = {"id": "a", "api": "anthropic", "model": "claude-sonnet-4-5", "hidden_tokens": 30_000, "turns": turns}
    sessions.write_bytes(orjson.dumps(row))
    without = run("replay", str(sessions), "--out", str(out))
    assert b'"at"' not in out.read_bytes()
    replayed = run("replay", str(sessions), "--out", str(out), "--keep-alive")
    assert replayed == run("bill", str(out), "--sessions", str(sessions))
    rows = [orjson.loads(line) for line in out.read_bytes().splitlines()]
    assert [(row.get("turn"), row.get("at")) for row in rows] == [
        (0, None),
        (None, 280),
        (1, None),
        (2, None),
        (None, 730),
    ]
    assert rows[1]["body"] == {**rows[0]["body"], "max_tokens": 1}
    assert replayed["keep_alives"] == 2
    assert (
        replayed["cached_tokens"] - without["cached_tokens"] > 60_000
    )  # the call's read, and that of the next request


def test_unused_tools_leave_in_a_pause_if_wanted(tmp_path: Path) -> None:
    sessions, out = tmp_path / "sessions.jsonl", tmp_path / "sent.jsonl"
    call = {"type": "tool_use", "name": "zog", "input": {}}
    turns: list[dict[str, Any]] = [{"t": 0, "append": messages(50), "out": 5, "reset": "start"}]
    for number in range(30):
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "ok " * 200}
        step = [
            {"role": "assistant", "content": [{**call, "id": f"c{number}"}]},
            {"role": "user", "content": [result]},
        ]
        turns.append({"t": 10 * number + 10 + 7200 * (number > 24), "append": step, "out": 5})
    tools = [
        {"name": name, "description": "Moves it. " * 300, "input_schema": {"type": "object"}}
        for name in ("zog", *(f"tool_{number}" for number in range(10)))
    ]
    row = {"id": "a", "api": "anthropic", "model": "claude-sonnet-4-5", "hidden_tokens": 0, "tools": tools}
    sessions.write_bytes(orjson.dumps({**row, "turns": turns}))
    without = run("replay", str(sessions), "--out", str(out))
    replayed = run("replay", str(sessions), "--out", str(out), "--unused-tools")
    assert replayed == run("bill", str(out), "--sessions", str(sessions))
    offered = [len(orjson.loads(line)["body"]["tools"]) for line in out.read_bytes().splitlines()]
    assert offered == [11] * 26 + [1] * 5
    assert replayed["cache_write_5m_tokens"] < without["cache_write_5m_tokens"] - 5000
    assert replayed["usd"] < without["usd"]
