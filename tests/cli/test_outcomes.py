"""`thriftgate outcomes build`: a pool is asked, scored and paid for, and `router fit` reads the result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from blockbuster import BlockBuster
from click.testing import CliRunner, Result
from sqlalchemy import select

from gateway.cli.main import cli
from gateway.routing.fit.outcomes import read_outcomes, read_pool
from gateway.settings.gateway import Paths
from gateway.state.sql.database import Database
from gateway.state.sql.tables import ledger
from tests.cli.test_compare import serving
from tests.fakes.provider import Fail, Provider, Reply

pytestmark = pytest.mark.timeout(120)

CONFIG = """\
backends:
  - {{name: large, kind: openai, base_url: "{a}", model: m-large, strength: large, price: {{input: 2, output: 8}}}}
  - {{name: small, kind: openai, base_url: "{b}", model: m-small, strength: small, price: {{input: 1, output: 1}}}}
  - {{name: judge, kind: openai, base_url: "{c}", model: m-judge, strength: large, price: {{input: 2, output: 8}}}}
"""
PROMPTS = [{"id": f"p{number}", "prompt": f"How much is {number} + 1?"} for number in range(4)]


@pytest.fixture(autouse=True)
def may_block(no_blocking_calls: BlockBuster) -> None:
    """A command serves nobody while it reads its files."""
    no_blocking_calls.deactivate()


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[tuple[Provider, Provider, Provider]]:
    a, b = Provider(default=Reply(text="The answer is 3.")), Provider(default=Reply(text="The answer is 3."))
    judge = Provider(default=Reply(text="SAME"))
    with serving(a, b, judge):
        (tmp_path / "gateway.yaml").write_text(CONFIG.format(a=a.url, b=b.url, c=judge.url))
        (tmp_path / "policies").mkdir()
        write(tmp_path / "prompts.jsonl", PROMPTS)
        yield a, b, judge


def write(path: Path, rows: list[Any]) -> Path:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def run(folder: Path, *words: str, source: tuple[str, str] = ("--prompts", "prompts.jsonl")) -> Result:
    places = ("--config", folder / "gateway.yaml", "--data-dir", folder / "data", "--policies", folder / "policies")
    asked = ("--pool", "large,small", "--out", folder / "out.jsonl", source[0], folder / source[1])
    return CliRunner().invoke(cli, [str(word) for word in ("outcomes", "build", *asked, *words, *places)])


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    lines = (folder / "out.jsonl").read_bytes().splitlines()
    return {row["id"]: row for row in map(orjson.loads, lines)}


def test_answers_are_scored_against_the_baselines_and_router_fit_reads_the_file(
    tmp_path: Path, pool: tuple[Provider, Provider, Provider]
) -> None:
    _, b, _ = pool
    b.script(Reply(text="The answer is 3."), Reply(text="The answer is 4."), Fail(status=400))
    result = run(tmp_path, "--concurrency", "1", "--pool-out", str(tmp_path / "pool.json"), "--json")
    assert result.exit_code == 0, result.stderr
    told = orjson.loads(result.stdout)
    assert (told["written"], told["known"], told["stopped"]) == (4, 0, None)
    found = rows(tmp_path)
    assert found["p0"]["q"] == {"large": 1.0, "small": 1.0}
    assert found["p1"]["q"] == {"large": 1.0, "small": 0.0}
    assert found["p2"]["q"] == {"large": 1.0}
    assert found["p0"]["ans"]["small"] == found["p0"]["ans"]["large"] != found["p1"]["ans"]["small"]
    outcomes = read_outcomes([tmp_path / "out.jsonl"], read_pool(tmp_path / "pool.json"))
    assert outcomes.models == ("large", "small")
    assert outcomes.quality[1].tolist() == [1.0, 0.0]
    assert orjson.loads((tmp_path / "pool.json").read_bytes()) == {"large": [2.0, 8.0], "small": [1.0, 1.0]}
    database = Database(f"sqlite:///{Paths(tmp_path / 'data').sqlite}")
    with database.read() as connection:
        booked = connection.execute(select(ledger.c.team, ledger.c.kind, ledger.c.cost_pico)).all()
    database.close()
    assert {(row.team, row.kind) for row in booked} == {("default", "shadow")}
    assert len(booked) == 8
    assert sum(row.cost_pico or 0 for row in booked) == round(float(told["spent_usd"]) * 10**12)


def test_a_known_answer_decides_for_all_backends(tmp_path: Path, pool: tuple[Provider, ...]) -> None:
    write(tmp_path / "prompts.jsonl", [{"id": 1, "prompt": "How much is 3 + 1?", "answer": "4"}])
    assert run(tmp_path).exit_code == 0
    assert rows(tmp_path)["1"]["q"] == {"large": 0.0, "small": 0.0}


def test_a_second_run_goes_on_where_the_first_was_cut_off(
    tmp_path: Path, pool: tuple[Provider, Provider, Provider]
) -> None:
    assert run(tmp_path).exit_code == 0
    whole = (tmp_path / "out.jsonl").read_bytes()
    kept = whole.splitlines(keepends=True)
    (tmp_path / "out.jsonl").write_bytes(kept[0] + kept[1] + kept[2][:20])
    asked = len(pool[0].exchanges)
    result = run(tmp_path, "--json")
    assert (orjson.loads(result.stdout)["written"], orjson.loads(result.stdout)["known"]) == (2, 2)
    assert len(pool[0].exchanges) == asked + 2
    assert sorted(rows(tmp_path)) == ["p0", "p1", "p2", "p3"]


def test_calls_stop_at_the_limit_and_what_was_measured_is_kept(tmp_path: Path, pool: tuple[Provider, ...]) -> None:
    for provider in pool[:2]:
        provider.default = Reply(tokens=450)  # a call costs nearly as much as may be held for it
    result = run(tmp_path, "--max-usd", "0.011", "--concurrency", "1", "--json")
    assert result.exit_code == 0, result.stderr
    told = orjson.loads(result.stdout)
    assert told["stopped"]
    assert 0 < told["written"] < 4
    assert len(rows(tmp_path)) == told["written"]


def test_prose_needs_a_judge_and_a_backend_can_be_one(
    tmp_path: Path, pool: tuple[Provider, Provider, Provider]
) -> None:
    pool[0].default = Reply(text="It lies on the river Seine and has two million people. Many visit its museums.")
    pool[1].default = Reply(text="The city is old and has wide streets. Trains of the whole country meet there.")
    write(tmp_path / "prompts.jsonl", [{"id": 1, "prompt": "Describe the capital of France."}])
    result = run(tmp_path)
    assert "Without a verdict of the judge: 1 answer;" in result.stdout
    (tmp_path / "out.jsonl").unlink()
    assert run(tmp_path, "--judge", "judge").exit_code == 0
    assert rows(tmp_path)["1"]["q"] == {"large": 1.0, "small": 0.5 + 0.5}


def test_a_baseline_that_fails_leaves_the_prompt_for_the_next_run(
    tmp_path: Path, pool: tuple[Provider, Provider, Provider]
) -> None:
    pool[0].default = Fail(status=400)
    result = run(tmp_path, "--json")
    assert orjson.loads(result.stdout)["written"] == 0
    assert sum(orjson.loads(result.stdout)["skipped"].values()) == 4
    pool[0].default = Reply(text="The answer is 3.")
    assert orjson.loads(run(tmp_path, "--json").stdout)["written"] == 4


def test_prompts_of_a_log_are_asked_once_each_and_those_with_tools_are_left_out(
    tmp_path: Path, pool: tuple[Provider, Provider, Provider]
) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]

    def call(id: str, text: str, **fields: Any) -> dict[str, Any]:
        return {"id": id, "model": "x", "usage": usage, "messages": [{"role": "user", "content": text}], **fields}

    log = [call("a", "How much is 1 + 2?"), call("b", "How much is 1 + 2?"), call("c", "Call f.", tools=tools)]
    write(tmp_path / "log.jsonl", log)
    told = orjson.loads(run(tmp_path, "--json", source=("--log", "log.jsonl")).stdout)
    assert told["written"] == 1
    assert list(told["skipped"].values()) == [1]
    assert list(rows(tmp_path)) == ["a"]


def test_a_sample_is_the_same_for_one_seed(tmp_path: Path, pool: tuple[Provider, ...]) -> None:
    assert run(tmp_path, "--sample", "2", "--seed", "5").exit_code == 0
    first = set(rows(tmp_path))
    assert len(first) == 2
    told = orjson.loads(run(tmp_path, "--sample", "2", "--seed", "5", "--json").stdout)
    assert (told["written"], told["known"]) == (0, 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--pool", "large"), "at least two backends"),
        (("--pool", "large,nosuch"), "There is no backend 'nosuch'; known: large, small, judge."),
        (("--log", "x"), "give one of --prompts, --log and --samples"),
        (("--max-usd", "much"), "--max-usd"),
        (("--out", "prompts.jsonl"), "the file exists and has no outcomes; name another file"),
        (("--judge", "nosuch"), "There is no backend 'nosuch'"),
    ],
)
def test_what_is_wrong_is_said_before_a_call_is_paid(
    tmp_path: Path, pool: tuple[Provider, ...], words: tuple[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # a gateway of another test may run
    write(tmp_path / "prompts.jsonl", [{"prompt": "How much is 1 + 2?"}])
    result = run(tmp_path, *words)
    assert result.exit_code
    assert message in result.stderr
    assert not any(provider.exchanges for provider in pool)
