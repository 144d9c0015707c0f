"""`thriftgate simulate`: what the calls in a log of other software would have cost under this gateway's rules."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from gateway.cli.simulation.call import LogError, LoggedCall
from gateway.cli.simulation.reading import read_calls
from gateway.ledger.store import samples
from gateway.ledger.store.samples import KeptSample
from gateway.settings.gateway import Paths
from gateway.state.sql.database import Database
from tests.ledger.samples import row as entry
from tests.ledger.samples import write as ledger_of

CONFIG = """\
backends:
  - {name: small, kind: openai, base_url: "http://127.0.0.1:9/v1", model: s, strength: small,
      capabilities: [tools], price: {input: 0.1, output: 0.1}}
  - {name: large, kind: openai, base_url: "http://127.0.0.1:9/v1", model: l, strength: large,
      capabilities: [tools], price: {input: 10, output: 10, cached_input: 1}}
"""
EASY, OTHER = "What is the capital of France?", "What is the capital of Spain?"
Row = dict[str, Any]


def asked(question: str, **fields: Any) -> Row:
    return {"messages": [{"role": "user", "content": question}], **fields}


def plain(question: str, at: float = 1000.0, **facts: Any) -> Row:
    usage = {"prompt_tokens": 100, "completion_tokens": 200, "total_tokens": 300}
    return {"model": "l", "usage": usage, "at": at, "usd": "0.003", **asked(question), **facts}


def litellm(question: str | None, **facts: Any) -> Row:
    usual: Row = {
        "request_id": "r",
        "call_type": "acompletion",
        "startTime": "2026-11-01T10:00:00Z",
        "model": "l",
        "spend": 0.003,
        "prompt_tokens": 100,
        "completion_tokens": 200,
        "messages": asked(question)["messages"] if question else "{}",
        "metadata": "{}",
    }
    return {**usual, **facts}


def langfuse(given: Any, **facts: Any) -> Row:
    usual: Row = {
        "id": "o",
        "traceId": "t",
        "type": "GENERATION",
        "startTime": "2026-11-01T10:00:00.000Z",
        "model": "l",
        "input": given,
        "usageDetails": {"input": 100, "output": 200, "total": 300},
        "costDetails": {"input": 0.001, "output": 0.002, "total": 0.003},
    }
    return {**usual, **facts}


def line(name: str, before: str | None, role: str, content: Any, **message: Any) -> Row:
    """A line of Claude Code's transcript."""
    body = {"role": role, "content": content, **message}
    stamp = f"2026-11-01T10:00:{len(name):02}Z"
    return {"type": role, "uuid": name, "parentUuid": before, "sessionId": "s", "timestamp": stamp, "message": body}


def answer(name: str, before: str, id: str, text: str, **facts: Any) -> Row:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 97, "output_tokens": 50}
    block = [{"type": "text", "text": text}]
    return line(name, before, "assistant", block, id=id, model="claude-opus-4-6", usage=usage, **facts)


def write(path: Path, rows: Iterable[Row]) -> Path:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gateway.yaml").write_text(CONFIG)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "search.yaml").write_text(
        "team: search\nmodels: {auto: {candidates: [small, large], quality: 60%}}\n"
    )
    return tmp_path


def run(folder: Path, log: Path, *words: str) -> Result:
    places = ("--config", folder / "gateway.yaml", "--data-dir", folder / "data", "--policies", folder / "policies")
    asked = ["simulate", str(log), "--team", "search", *words, *map(str, places)]
    return CliRunner().invoke(cli, asked, env={"COLUMNS": "200"})


def found(folder: Path, rows: Iterable[Row], *words: str) -> Row:
    result = run(folder, write(folder / "log.jsonl", rows), "--json", *words)
    assert result.exit_code == 0, result.stderr
    return dict(orjson.loads(result.stdout))


@pytest.mark.parametrize(
    "row",
    [
        plain(EASY),
        {"request": asked(EASY, model="l"), "response": plain("")},
        litellm(EASY),
        litellm(None, proxy_server_request=orjson.dumps(asked(EASY, model="l")).decode()),
        langfuse(asked(EASY)["messages"]),
        langfuse(asked(EASY)),
        langfuse(EASY),
    ],
)
def test_an_easy_prompt_of_any_log_moves_to_the_cheaper_model(folder: Path, row: Row) -> None:
    told = found(folder, [{**row, "usd": "0.003"} if "request" in row else row])
    moved = told["kinds"]["moved"]
    assert told["moves"] == [{"from": "l", "to": "small", "calls": 1}]
    assert (moved["now_usd"], moved["low_usd"]) == ("0.003", "0.00003")
    assert told["calls"] == 1
    assert not told["unknown"]


def test_repeats_cost_nothing_while_the_policys_cache_keeps_them(folder: Path) -> None:
    day = 86_400
    tools = {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}
    rows = [plain(EASY), plain(EASY, 1060), plain(OTHER, 1060), plain(EASY, 1000 + 1.5 * day)]
    told = found(folder, [*rows, plain("Call f", 2000, **tools), plain("Call f", 2001, **tools)])
    assert told["kinds"]["repeat"] == {"calls": 1, "now_usd": "0.003", "low_usd": "0", "high_usd": "0"}
    assert told["calls"] == 6


def test_what_cannot_be_decided_keeps_its_cost_and_says_why(folder: Path) -> None:
    told = found(folder, [litellm(None), litellm(EASY), litellm(EASY, model="nobody's", spend=None)])
    assert told["unknown"] == {"the log has no prompt": 1}
    assert told["unpriced"] == {"nobody's": 1}
    assert told["kinds"]["unknown"] == {"calls": 1, "now_usd": "0.003", "low_usd": "0.003", "high_usd": "0.003"}


def test_a_log_without_costs_is_priced_by_the_list(folder: Path) -> None:
    told = found(folder, [plain(EASY, model="gpt-4o", usd=None)])
    assert told["now_usd"] == "0.00225"  # 100 tokens at 2.50 and 200 at 10 USD per million
    assert told["moves"] == [{"from": "gpt-4o", "to": "small", "calls": 1}]


def test_a_prompt_that_the_policy_keeps_at_its_model_costs_what_it_cost(folder: Path) -> None:
    (folder / "policies" / "search.yaml").write_text("team: search\nmodels: {auto: large}\n")
    told = found(folder, [plain(EASY)])
    assert told["kinds"] == {"kept": {"calls": 1, "now_usd": "0.003", "low_usd": "0.003", "high_usd": "0.003"}}
    assert told["saved_percent"] == [0.0, 0.0]


def test_a_model_that_the_policy_does_not_allow_is_refused(folder: Path) -> None:
    (folder / "gateway.yaml").write_text(CONFIG.replace("http://127.0.0.1:9", "https://models.example"))
    (folder / "policies" / "search.yaml").write_text("team: search\ndata: {hosted: forbidden}\n")
    told = found(folder, [plain(EASY)])
    assert told["kinds"]["refused"]["calls"] == 1


def test_an_observing_policy_is_simulated_as_if_it_decided(folder: Path) -> None:
    with (folder / "policies" / "search.yaml").open("a") as policy:
        policy.write("mode: observe\n")
    assert found(folder, [plain(EASY)])["moves"] == [{"from": "l", "to": "small", "calls": 1}]


def test_failed_calls_and_other_endpoints_are_left_out(folder: Path) -> None:
    rows = [litellm(EASY, status="failure"), litellm(EASY, call_type="aembedding"), litellm(EASY)]
    assert found(folder, rows)["calls"] == 1
    rows = [langfuse(EASY, type="SPAN"), langfuse(EASY, level="ERROR"), langfuse(EASY)]
    assert found(folder, rows)["calls"] == 1


def test_cached_tokens_of_litellm_and_langfuse_are_in_their_own_class() -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120, "cache_creation_input_tokens": 30}
    usage["prompt_tokens_details"] = {"cached_tokens": 60}
    for row in (
        litellm(EASY, metadata={"usage_object": usage}),
        langfuse(EASY, usageDetails={"input": 10, "input_cached_tokens": 60, "input_cache_creation": 30, "output": 20}),
    ):
        (call,) = calls([row])
        tokens = call.usage
        assert (tokens.input_tokens, tokens.cached_tokens, tokens.cache_write_5m_tokens) == (10, 60, 30)
        assert tokens.output_tokens == 20


def calls(rows: Iterable[Row]) -> list[LoggedCall]:
    with TemporaryDirectory() as place:
        return read_calls(write(Path(place) / "log.jsonl", rows))[1]


TRANSCRIPT = [
    {"type": "summary", "summary": "A session", "leafUuid": "x"},
    line("u", None, "user", "Fix the test."),
    answer("aa", "u", "m1", "I look."),
    answer("aaa", "aa", "m1", "And read."),
    line("uuuu", "aaa", "user", [{"type": "tool_result", "tool_use_id": "t", "content": "x = 1"}]),
    answer("aaaaa", "uuuu", "m2", "Done."),
    line("bbbbbb", "u", "user", "Another branch."),
    answer("bbbbbbb", "bbbbbb", "m3", "Yes."),
    {**answer("cccccccc", "bbbbbbb", "m4", "Failed."), "message": {"role": "assistant", "model": "<synthetic>"}},
]


def test_a_transcript_of_claude_code_has_one_call_for_each_answer_with_the_messages_of_its_branch() -> None:
    first, second, third = calls(TRANSCRIPT)
    assert [call.id for call in (first, second, third)] == ["m1", "m2", "m3"]
    assert (first.usage.input_tokens, first.usage.cached_tokens, first.usage.cache_write_5m_tokens) == (3, 900, 97)
    sent = [orjson.loads(call.body("auto") or b"{}")["messages"] for call in (first, second, third)]
    assert [len(messages) for messages in sent] == [1, 3, 1]
    texts = [block["text"] for block in sent[1][1]["content"]]
    assert texts == ["I look.", "And read."]
    assert [block["text"] for block in sent[2][0]["content"]] == ["Fix the test.", "Another branch."]


def test_a_folder_of_transcripts_is_priced_and_stays_at_the_models_that_can_use_tools(folder: Path) -> None:
    projects = folder / "projects" / "app"
    projects.mkdir(parents=True)
    write(projects / "one.jsonl", TRANSCRIPT)
    write(projects / "empty.jsonl", [])
    result = run(folder, folder / "projects", "--json")
    assert result.exit_code == 0, result.stderr
    told = orjson.loads(result.stdout)
    assert (told["format"], told["calls"]) == ("claude-code", 3)
    assert told["moves"] == [{"from": "claude-opus-4-6", "to": "large", "calls": 3}]


def test_a_transcript_may_begin_with_any_line_of_a_session(tmp_path: Path) -> None:
    mode = {"type": "permission-mode", "permissionMode": "default", "sessionId": "s"}
    kind, found = read_calls(write(tmp_path / "log.jsonl", [mode, *TRANSCRIPT[1:]]))
    assert (kind, len(found)) == ("claude-code", 3)


def test_a_page_of_an_api_and_langfuses_files_in_blob_storage_are_read(folder: Path) -> None:
    blob = {
        "id": "o", "trace_id": "t", "session_id": "s", "type": "GENERATION", "level": "DEFAULT",
        "start_time": "2026-11-01 10:00:00.963000", "provided_model_name": "l", "input": EASY,
        "usage_details": {"input": 100, "output": 200, "total": 300}, "cost_details": {"total": 0.003},
    }  # fmt: skip
    log = folder / "page.json"
    for row in (blob, litellm(EASY)):
        log.write_bytes(orjson.dumps({"data": [row], "meta": {"page": 1}}, option=orjson.OPT_INDENT_2))
        told = orjson.loads(run(folder, log, "--json").stdout)
        assert (told["now_usd"], told["moves"]) == ("0.003", [{"from": "l", "to": "small", "calls": 1}])


def test_a_model_with_its_providers_prefix_is_the_same_model(folder: Path) -> None:
    (folder / "policies" / "search.yaml").write_text("team: search\nmodels: {auto: large}\n")
    assert found(folder, [litellm(EASY, model="openai/l")])["kinds"]["kept"]["calls"] == 1


def test_samples_cost_what_the_ledger_has_for_all_their_attempts(folder: Path) -> None:
    paths, now = Paths(folder / "data"), time.time()
    database = Database(f"sqlite:///{paths.sqlite}")
    database.upgrade()
    rows = [
        entry("r1", outcome="escalated", cost_pico=10**9),
        entry("r1", 2, cost_pico=2 * 10**9, input_tokens=100, output_tokens=200),
        entry("r1", 3, kind="shadow", cost_pico=5 * 10**9),
        entry("r2", team="other"),
    ]
    ledger_of(paths.journal, database, rows)
    with database.begin() as connection:
        for id in ("r1", "r2", "gone"):
            sample = KeptSample(id, "en/text/opening", asked(EASY), [], "agreement", 1.0)
            samples.keep(connection, "search", sample, now, now + 1000)
    database.close()
    result = run(folder, Path("--samples"), "--json")
    assert result.exit_code == 0, result.stderr
    told = orjson.loads(result.stdout)
    assert (told["format"], told["calls"], told["now_usd"]) == ("samples", 1, "0.003")
    assert told["moves"] == [{"from": "big", "to": "small", "calls": 1}]
    assert "only a part of the traffic" in run(folder, Path("--samples")).stdout
    assert "Team other keeps no samples" in run(folder, Path("--samples"), "--team", "other").stdout


def test_a_log_and_samples_at_once_are_refused(folder: Path) -> None:
    log = write(folder / "log.jsonl", [plain(EASY)])
    assert "give either LOG or --samples" in run(folder, log, "--samples").stderr


def test_a_csv_export_is_read(folder: Path) -> None:
    log = folder / "log.csv"
    row = {**litellm(EASY), "messages": orjson.dumps(asked(EASY)["messages"]).decode()}
    with log.open("w", newline="") as file:
        writer = csv.DictWriter(file, row)
        writer.writeheader()
        writer.writerow(row)
    result = run(folder, log, "--json")
    assert orjson.loads(result.stdout)["moves"] == [{"from": "l", "to": "small", "calls": 1}]


def test_a_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", [plain(EASY), plain(OTHER)])
    log.write_bytes(log.read_bytes()[:-20])
    assert len(read_calls(log)[1]) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the log is empty"),
        ('{"model": "l"}\n', "row 1 is of no known log: model. Known are litellm, langfuse, chat, claude-code"),
        ('{"messages": [], "model": "l"}\n', "row 1: the call has no usage: add the provider's `usage` object"),
        ('{"spend": 1, "startTime": "soon"}\n', "row 1: 'soon' is no date"),
        ('{"spend": 1, "startTime": "2026-11-01"}\nx\n{}\n', "line 2 is not JSON"),
        ("[1]", "row 1 is no JSON object"),
        ("[{]", "line 1"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(text)
    with pytest.raises(LogError, match=r"log\.jsonl") as caught:
        read_calls(log)
    assert message in str(caught.value)


def test_a_person_reads_a_table_and_the_assumptions(folder: Path) -> None:
    result = run(folder, write(folder / "log.jsonl", [plain(EASY), plain(EASY, 1001)]))
    assert "Saved: 99." in result.stdout
    assert "Moves from l to small: 1 call." in result.stdout
    assert "as a request for model auto" in result.stdout


def test_a_rise_in_cost_is_no_negative_saving(folder: Path) -> None:
    result = run(folder, write(folder / "log.jsonl", [plain(EASY, usd="0.0000001")]))
    assert "% more than in the chat log, by the policy of team search." in result.stdout
    assert "Saved" not in result.stdout


def test_a_baseline_that_is_dearer_than_the_model_in_the_log_is_explained(folder: Path) -> None:
    log = write(folder / "log.jsonl", [plain("Call f", tools=[{"type": "function", "function": {"name": "f"}}])])
    (folder / "policies" / "search.yaml").write_text("team: search\nmodels: {auto: large, s: [small, large]}\n")
    log.write_bytes(log.read_bytes().replace(b'"model":"l"', b'"model":"s"').replace(b"0.003", b"0.00003"))
    assert "give its name with --model" in run(folder, log).stdout
    assert "give its name with --model" not in run(folder, log, "--model", "s").stdout


def test_without_a_backend_the_command_says_what_to_do(folder: Path) -> None:
    (folder / "gateway.yaml").write_text("local_model: {enabled: false}\nbackends: []\n")
    result = run(folder, write(folder / "log.jsonl", [plain(EASY)]))
    assert result.exit_code == 1
    assert "thriftgate init" in result.stderr


@pytest.mark.parametrize("usd", ["1e9999999", "1e999999", "1e20", -5, "NaN", "Infinity", [1], {}])
def test_an_impossible_cost_counts_as_none(tmp_path: Path, usd: Any) -> None:
    found = read_calls(write(tmp_path / "plain.jsonl", [plain(EASY, usd=usd)]))[1]
    found += read_calls(write(tmp_path / "spend.jsonl", [litellm(EASY, spend=usd)]))[1]
    assert [call.cost_pico for call in found] == [None, None]


@pytest.mark.parametrize("count", ["9" * 4000, "9" * 5000, 10**9, -3, "x", None, [5]])
def test_an_impossible_number_of_tokens_counts_as_0(tmp_path: Path, count: Any) -> None:
    (call,) = read_calls(write(tmp_path / "log.jsonl", [litellm(EASY, prompt_tokens=count)]))[1]
    assert (call.usage.input_tokens, call.usage.output_tokens) == (0, 200)


HEAD = "startTime,traceId,model,input"


def test_a_csv_in_another_encoding_is_refused_with_its_row(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_bytes(f"{HEAD}\n2026-01-01,é,l,hi\n".encode("latin-1"))
    with pytest.raises(LogError, match=r"log\.csv: after row 0: .*UTF-8"):
        read_calls(log)


def test_a_csv_row_with_too_many_values_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text(f"{HEAD}\n2026-01-01,t,l,hi,more,and more\n")
    assert [call.model for call in read_calls(log)[1]] == ["l"]
