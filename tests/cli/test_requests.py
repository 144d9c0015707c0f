"""Commands about single requests and the figures of now, over a ledger without a gateway."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from gateway.alerts.alert import alert
from gateway.alerts.delivery.deliveries import write
from gateway.cli.main import cli
from gateway.cli.requests.lines import money
from gateway.cli.requests.logs import following
from gateway.cli.run.up import lines
from gateway.domain.holdout import is_held_out
from gateway.domain.policy import Policy
from gateway.ledger.reports.explanation import sentences
from gateway.ledger.reports.requests import Filter
from gateway.settings.gateway import Paths, load_settings
from gateway.state.sql.database import Database
from loadtests.ports import free_port
from tests.ledger.booked import book, row

CONFIG = """\
backends:
  - {{name: large, kind: openai, base_url: "https://api.openai.com/v1", model: gpt-4o}}
  - {{name: gone, kind: openai, base_url: "http://127.0.0.1:{port}/v1", model: m, price: {{input: 1, output: 2}}}}
  - {{name: toy, kind: simulated, model: toy}}
"""
ONE, TWO = f"req_{1:032x}", f"req_{2:032x}"


def recent(id: str, **facts: Any) -> dict[str, Any]:
    usual = {"at": time.time() - 60, "cache": "miss"}
    return row(id=f"{id}-1", request_id=id, **(usual | facts))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    (tmp_path / "gateway.yaml").write_text(CONFIG.format(port=free_port()))
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "search.yaml").write_text("team: search\n")
    database = Database(f"sqlite:///{Paths(tmp_path / 'data').sqlite}")
    database.upgrade()
    book(
        database,
        recent(
            ONE,
            prices="input=150000 output=600000",
            duration_ms=812.0,
            difficulty=0.21,
            trimmed_tokens=40,
            outcome="ok",
        ),
        recent(TWO, team="chat", outcome="failed", error="backend_timeout", cost_pico=0),
    )
    yield database
    database.close()


def run(folder: Path, *words: str, columns: int = 80) -> Result:
    places = ("--config", folder / "gateway.yaml", "--data-dir", folder / "data", "--policies", folder / "policies")
    return CliRunner().invoke(cli, [*words, *map(str, places)], env={"COLUMNS": str(columns)})


@pytest.mark.parametrize(
    ("pico", "text"),
    [
        (0, "$0.00"), (None, "price unknown"), (1234 * 10**10, "$12.34"), (10**12, "$1.00"), (123456 * 10**6, "$0.123"),
        (1_234_567, "$0.00000123"), (500 * 10**9, "$0.50"), (70 * 10**6, "$0.00007"),
        (1234567 * 10**12, "$1,234,567.00"),
    ],
)  # fmt: skip
def test_money_is_told_to_the_cent_or_with_three_digits(pico: int | None, text: str) -> None:
    assert money(pico) == text


def test_logs_are_a_line_each_filtered_or_json(database: Database, tmp_path: Path) -> None:
    shown = run(tmp_path, "logs").output.splitlines()
    assert [line.rpartition("  ")[2] for line in shown] == [ONE, TWO]
    assert "search  auto → large  ok" in shown[0]
    assert "failed (backend_timeout)" in shown[1]
    (only,) = run(tmp_path, "logs", "--failed", "--json").output.splitlines()
    assert orjson.loads(only)["request"] == TWO
    for words in ((), ("--backend", "large", "-n", "1"), ("--since", "1h", "--model", "auto")):
        assert ONE in run(tmp_path, "logs", "--team", "search", *words).output
    none = run(tmp_path, "logs", "--since", "1s")
    assert (none.stdout, none.stderr) == ("", "No request is recorded for these options.\n")
    assert run(tmp_path, "logs", "--since", "yesterday").exit_code == 2


def test_following_yields_what_is_stored_later_once(database: Database) -> None:
    new = [f"req_{number:032x}" for number in (7, 8)]

    def arrive(_: float) -> None:
        if new:
            book(database, recent(new.pop(0)))

    found = following(database, Filter(), arrive)
    assert [next(found).request_id, next(found).request_id] == [f"req_{7:032x}", f"req_{8:032x}"]


def test_top_shows_teams_backends_and_errors_within_80_columns(database: Database, tmp_path: Path) -> None:
    found = orjson.loads(run(tmp_path, "top", "--json").stdout)
    assert {one["name"]: one["failed"] for one in found["teams"]} == {"search": 0, "chat": 1}
    assert found["errors"] == {"backend_timeout": 1}
    text = run(tmp_path, "top", "--once").output
    assert "last 5 min: 2 requests" in text
    assert len(text.splitlines()) <= 24
    assert max(map(len, text.splitlines())) <= 80


def test_a_request_is_explained_from_the_ledger(database: Database, tmp_path: Path) -> None:
    text = run(tmp_path, "explain", ONE, columns=200).output
    for part in (
        f"{ONE}: team search",
        "It asked for auto, and was answered after 812 ms",
        "The cache had no answer that fits.",
        "Difficulty 0.21 of 1.",
        "Call 1: large, ok: ",
        "its prices per million tokens: input $0.15, output $0.60",
        "40 tokens of context were left out",
        "From the ledger",
    ):
        assert part in text, part
    assert "ended with backend_timeout" in run(tmp_path, "explain", TWO).output
    assert orjson.loads(run(tmp_path, "explain", ONE, "--json").stdout)["source"] == "ledger"
    unknown = run(tmp_path, "explain", f"req_{9:032x}")
    assert (unknown.exit_code, "The ledger has no request" in unknown.output) == (1, True)


def test_a_decision_is_explained_with_its_reasons() -> None:
    attempt = {"backend": "small", "kind": None, "outcome": "escalated", "confidence": 0.5, "input_tokens": 1200,
               "cached_tokens": 800, "output_tokens": 20, "estimated": True, "cost_usd": "0.0012", "unpriced": None,
               "status": 200, "error": None,
               "usd_per_million_tokens": {"input": "0.15", "output": "0.6", "cached_input": "0.075"}}  # fmt: skip
    considered = [
        {"backend": "small", "excluded": None, "adequacy": 0.97, "cost_usd": "0.0001"},
        {"backend": "far", "excluded": "hosted, and data.hosted forbids that", "adequacy": None, "cost_usd": None},
    ]
    route = {"order": ["small", "large"], "reason": "cheapest that reaches 95%", "considered": considered,
             "pressure": 0.5, "quality": 0.9,
             "what_if": ["large would be chosen if small cost 2.00 times as much"]}  # fmt: skip
    flight = {
        "id": ONE, "team": "search", "key": "key_1", "at": 0.0, "model": "auto", "stream": True, "status": 200,
        "error": None, "cache": "miss", "cache_score": None, "saved_usd": None, "difficulty": 0.3, "abstained": True,
        "route": route, "attempts": [attempt], "trimmed_tokens": 0, "cost_usd": "0.0132", "first_byte_ms": 12.0,
        "duration_ms": 90.0, "degraded": ["embedder"], "source": "recorder",
        "notes": [{"what": "output capped", "backend": "large", "tokens": 500},
                  {"what": "backend skipped", "backend": "spare", "why": "resting"}],
    }  # fmt: skip
    text = "\n".join(sentences(flight, UTC))
    for part in (
        "as a stream, and was answered after 90 ms (first byte 12 ms)",
        "Difficulty 0.30 of 1, outside the grader's domain.",
        "Backends in order: small, then large. Why: cheapest that reaches 95%.",
        "small: $0.0001 expected, 97% likely to be as good as the baseline",
        "far: excluded, hosted, and data.hosted forbids that",
        "Spend is ahead of plan (50%), so quality 90.0% was enough.",
        "  large would be chosen if small cost 2.00 times as much.",
        "Call 1: small, escalated: 1,200 tokens in (800 from its prompt cache), 20 out, counted by the gateway",
        "its prices per million tokens: input $0.15, output $0.60, cache read $0.075",
        "small was not sure enough (confidence 50%), so a stronger backend was asked.",
        "The budget paid for at most 500 output tokens of large.",
        "spare was skipped: resting.",
        "Cost in all: $0.0132.",
        "Parts that were out of order: embedder.",
    ):
        assert part in text, part


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        ("backend_failed", 500, "it answered with an error (backend_failed, status 500)."),
        ("backend_timeout", None, "no answer within its timeout (backend_timeout)."),
        ("content_filter", 400, "content_filter, status 400."),
        (None, None, "no answer."),
    ],
)
def test_a_failed_call_is_explained_with_status_and_reason(
    database: Database, tmp_path: Path, error: str | None, status: int | None, words: str
) -> None:
    flight = orjson.loads(run(tmp_path, "explain", ONE, "--json").stdout)
    flight["attempts"][0] |= {"outcome": "failed", "error": error, "status": status}
    assert f"Call 1: large failed: {words}" in list(sentences(flight, UTC))


def test_savings_fit_one_screen_and_are_exact_in_json(database: Database, tmp_path: Path) -> None:
    text = run(tmp_path, "savings").output
    assert text.startswith(("Saved: ", "Spent more: "))
    assert "search" in text
    assert len(text.splitlines()) <= 24
    assert max(map(len, text.splitlines())) <= 80
    found = orjson.loads(run(tmp_path, "savings", "--team", "search", "--json").stdout)
    assert {one["team"] for one in found["teams"]} == {"search"}
    assert found["net_saved_usd"] == found["total"]["saved_usd"]


@pytest.mark.parametrize("command", ["usage", "savings"])
def test_a_team_that_nobody_knows_is_a_mistake(database: Database, tmp_path: Path, command: str) -> None:
    result = run(tmp_path, command, "--team", "serch")
    assert result.exit_code == 2
    assert "There is no team 'serch'" in result.output
    assert "did you mean search?" in result.output
    assert run(tmp_path, command, "--team", "chat").exit_code == 0  # it has spend, but no policy


def test_backends_are_listed_and_tested(database: Database, tmp_path: Path) -> None:
    rows = orjson.loads(run(tmp_path, "backends", "list", "--json").stdout)
    assert {one["name"]: one["location"] for one in rows} == {"large": "hosted", "gone": "local", "toy": "local"}
    assert rows[1]["usd_per_million_tokens"] == "1 in, 2 out"
    assert "1 in, 2 out per 1M tokens" in run(tmp_path, "backends", "list", columns=200).output
    result = run(tmp_path, "backends", "test", "gone", "toy")
    assert result.exit_code == 1
    assert "✗ gone: cannot be reached: the connection was refused" in result.output
    assert "✓ toy: simulated, not a real model" in result.output
    assert run(tmp_path, "backends", "test", "toy").exit_code == 0
    assert "did you mean toy?" in run(tmp_path, "backends", "test", "tyo").output


def test_backends_of_one_model_under_several_vendors_are_named(tmp_path: Path) -> None:
    listed = """backends:
      - {name: one, kind: openai, base_url: "https://api.openai.com/v1", model: gpt-5-mini}
      - {name: two, kind: openrouter, model: openai/gpt-5-mini, base_url: "https://openrouter.ai/api/v1"}
    """
    (tmp_path / "policies").mkdir()
    words = "one, two serve the same model (gpt-5-mini); a common `model_group`, or `model_groups: auto`"
    for setting, expected in (("", True), ("model_groups: auto\n", False)):
        (tmp_path / "gateway.yaml").write_text(setting + listed)
        for command in (("check",), ("backends", "list")):
            said = " ".join(run(tmp_path, *command, columns=200).output.split())
            assert (words in said) == expected


def test_up_tells_a_person_what_there_is_and_what_is_next(tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text("backends: [{name: toy, kind: simulated, model: toy}]\n")
    told = list(lines(load_settings(tmp_path / "gateway.yaml", tmp_path), "http://127.0.0.1:8080"))
    assert told[0] == "Listening on http://127.0.0.1:8080/v1, page http://127.0.0.1:8080/dashboard"
    assert "  ✓ toy: simulated, not a real model" in told
    assert any("thriftgate connect claude-code" in line for line in told)
    assert max(map(len, told[:-1])) <= 80


def test_tables_cut_no_price_and_no_name_at_80_columns(database: Database, tmp_path: Path) -> None:
    name = "claude-sonnet-4-6"
    book(database, recent(f"req_{3:032x}", team="customer-support-emea", model=name, cost_pico=1_234_567_890_123))
    for typed in ("usage", "usage --by team,model", "usage --savings", "keys list", "savings", "backends list",
                  "policy show search --effective", "prices unpriced"):  # fmt: skip
        words = typed.split()
        text = run(tmp_path, *words).output
        assert "…" not in text, words
        assert max(map(len, text.splitlines())) <= 80, words
    text = run(tmp_path, "prices", "list", "gpt-5").output
    prices = {one["input"] for one in orjson.loads(run(tmp_path, "prices", "list", "gpt-5", "--json").stdout)}
    assert prices
    assert all(f" {price} " in text for price in prices)
    assert "customer-support-emea" in run(tmp_path, "usage", "--by", "team,model").output


def test_the_cache_doctor_names_each_miss_with_its_cause_and_cost(tmp_path: Path, database: Database) -> None:
    prices = "input=3000000 output=15000000 cached_input=300000"
    usual = {"session": "chat-7", "prices": prices, "model": "gpt-4o", "output_tokens": 1}
    book(
        database,
        recent(f"req_{3:032x}", **usual, at=time.time() - 50, input_tokens=20_000, cached_tokens=0),
        recent(f"req_{4:032x}", **usual, at=time.time() - 40, input_tokens=21_000, cached_tokens=0),
    )
    found = orjson.loads(run(tmp_path, "context", "doctor", "--session", "chat-7", "--json").output)
    assert found["requests"] == 2
    (miss,) = found["misses"]
    assert (miss["cause"], miss["lost_tokens"], miss["lost_usd"]) == ("beginning changed", 20_000, "0.054")
    shown = run(tmp_path, "context", "doctor", "--team", "search", columns=200).output
    assert "1 misses in 2 requests" in shown
    assert "beginning changed: 1, $0.054" in shown
    assert "no miss" in run(tmp_path, "context", "doctor", "--session", "other").output


def test_the_cache_doctor_compares_two_requests(tmp_path: Path, database: Database) -> None:
    for name, at in ("before", "10:15"), ("now", "10:16"):
        messages = [{"role": "system", "content": f"It is {at}."}, {"role": "user", "content": "Hi"}]
        (tmp_path / f"{name}.json").write_bytes(orjson.dumps({"model": "gpt-4o", "messages": messages}))
    before, now = (str(tmp_path / f"{name}.json") for name in ("before", "now"))
    assert "a time or a date" in run(tmp_path, "context", "doctor", before, now).output
    assert "repeats all" in run(tmp_path, "context", "doctor", before, before).output
    assert run(tmp_path, "context", "doctor", before).exit_code == 2


def test_the_report_of_cuts_compares_the_sessions_that_are_held_out(tmp_path: Path, database: Database) -> None:
    (tmp_path / "policies" / "search.yaml").write_text("team: search\ncontext: {holdout: 50%}\n")
    assert "0 held out, 0 others" in run(tmp_path, "context", "report", "--team", "search").output
    held = [is_held_out("search", f"s{number}", 0.5) for number in range(8)]
    usual = {"prices": "input=3 output=15", "model": "claude-opus-4-6"}
    book(
        database,
        *[
            recent(f"req_{number}{each:02}", session=f"s{number}", cost_pico=100 if held[number] else 80, **usual)
            for number in range(8)
            for each in range(12)
        ],
    )
    found = orjson.loads(run(tmp_path, "context", "report", "--team", "search", "--json").output)
    assert (found["held_out_sessions"], found["other_sessions"]) == (sum(held), 8 - sum(held))
    assert found["figures"]["cost"]["change"] == pytest.approx(0.2)
    assert not found["enough"]
    pause = alert("search/context/1", "context", "warning", "search", {"text": "It does not pay."})
    with database.begin() as connection:
        write(connection, pause, "search", [], Policy(team="search").alerts, time.time() - 60)
    shown = run(tmp_path, "context", "report", "--team", "search", columns=200).output
    assert "Too few sessions" in shown
    assert "is switched off until" in shown
    assert "It does not pay." in shown
    assert run(tmp_path, "context", "report", "--team", "nobody").exit_code == 2


def test_advice_is_sorted_by_cost_and_says_what_it_could_not_know(tmp_path: Path, database: Database) -> None:
    usual = {"prices": "input=3000000 output=15000000 cached_input=300000", "model": "gpt-4o", "output_tokens": 1}
    cold = {**usual, "input_tokens": 20_000, "cached_tokens": 0}
    named = [recent(f"req_{number:032x}", **cold, session="chat-7", at=time.time() - 60 + number) for number in (3, 4)]
    book(database, *named, recent(f"req_{5:032x}", **cold))
    found = orjson.loads(run(tmp_path, "advise", "--team", "search", "--json").output)
    (view,) = found["teams"]
    assert view["cacheable_share"] == pytest.approx(0.333, abs=0.001)
    assert (view["read_share"], view["stored_responses"]) == (pytest.approx(0, abs=0.001), 0)
    (finding,) = found["findings"]
    assert (finding["subject"], finding["usd_month"]) == ("beginning changed", "1.62")
    assert any("without a session name" in sentence for sentence in found["unknown"])
    assert any("data.store_prompts" in sentence for sentence in found["unknown"])
    shown = run(tmp_path, "advise", columns=200).output
    assert "$1.62 a month, team search: cache miss, beginning changed (1 requests)." in shown
    assert run(tmp_path, "advise", "--team", "nobody").exit_code == 2
    assert "No answered call" in run(tmp_path, "advise", "--since", "2100-01-01").output


def test_logs_are_filtered_by_key_session_cache_and_status_and_number_repeated_attempts(
    database: Database, tmp_path: Path
) -> None:
    three = f"req_{3:032x}"
    book(database, recent(three, key_id="key_3", session="s3", cache="exact", status=503, attempt=2))
    for words in (("--key", "key_3"), ("--session", "s3"), ("--cache", "exact"), ("--status", "503")):
        (only,) = run(tmp_path, "logs", *words).output.splitlines()
        assert only.endswith(three)
        assert "attempt 2" in only
    assert "attempt" not in run(tmp_path, "logs", "--cache", "miss").output


def test_savings_name_the_part_that_is_not_the_caches(database: Database, tmp_path: Path) -> None:
    assert "the rest: routing and trimming" in run(tmp_path, "savings", "--team", "search").output


def test_a_failed_call_is_explained_with_its_status_and_a_cached_answer_without_a_route(
    database: Database, tmp_path: Path
) -> None:
    three, four = f"req_{3:032x}", f"req_{4:032x}"
    book(database, recent(three, outcome="failed", error="backend_failed", status=500, cost_pico=0))
    book(database, recent(four, cache="exact", attempt=0, backend="", cost_pico=0))
    assert "it answered with an error (backend_failed, status 500)." in run(tmp_path, "explain", three).output
    cached = run(tmp_path, "explain", four).output
    assert "Exact hit: the cache had the answer" in cached
    assert "reasons for its route" not in cached


def test_experiments_shows_each_variant_with_cost_and_ratings(tmp_path: Path, database: Database) -> None:
    (tmp_path / "policies" / "search.yaml").write_text("team: search\n")
    assert "took part" in run(tmp_path, "experiments", "--team", "search").output
    tags = {name: f'{{"experiment:brevity":"{name}"}}' for name in ("plain", "brief")}
    rows = [
        recent(f"req_{name}{number}", session=f"{name}{number}", cost_pico=pico, tags=tags[name])
        for name, pico in (("plain", 3_000_000), ("brief", 1_000_000))
        for number in range(4)
    ]
    book(database, *rows)
    found = orjson.loads(run(tmp_path, "experiments", "--team", "search", "--json").output)["variants"]
    assert [(one["name"], one["sessions"], one["usd_per_answer"]["value"]) for one in found] == [
        ("brief", 4, 0.000001),
        ("plain", 4, 0.000003),
    ]
    shown = run(tmp_path, "experiments", "--team", "search", columns=200).output
    assert "0.000003 (0.000003 to 0.000003)" in shown
    assert "Too few sessions" in shown
    assert run(tmp_path, "experiments", "--team", "search", "--since", "soon").exit_code == 2
