"""Two real backends are asked, judged and booked; what cannot be paid is not asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from blockbuster import BlockBuster
from click.testing import CliRunner, Result
from sqlalchemy import select

from gateway.cli.main import cli
from gateway.settings.gateway import Paths
from gateway.state.sql.database import Database
from gateway.state.sql.tables import ledger
from tests.fakes.provider import Fail, Provider, Reply

pytestmark = pytest.mark.timeout(120)

CONFIG = """\
backends:
  - {{name: full, kind: openai, base_url: "{a}", model: m-full, tier: large, price: {{input: 2, output: 8}}}}
  - {{name: quantised, kind: openai, base_url: "{b}", model: m-4bit, tier: small, price: {{machine_hour_usd: 1}}}}
  - {{name: unpriced, kind: openai, base_url: "{b}", model: nobody-knows, tier: hosted}}
"""
PROMPTS = [
    {"id": f"p{number}", "prompt": f"How much is {number} + 1?", "answer": str(number + 1)} for number in range(4)
]


@pytest.fixture(autouse=True)
def may_block(no_blocking_calls: BlockBuster) -> None:
    """A command serves nobody while it reads its files."""
    no_blocking_calls.deactivate()


@contextmanager
def serving(*providers: Provider) -> Iterator[None]:
    """On a loop of their own: the command has one itself."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        for provider in providers:
            asyncio.run_coroutine_threadsafe(provider.listen(), loop).result(10)
        yield
        for provider in providers:
            asyncio.run_coroutine_threadsafe(provider.refuse(), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Provider, Provider]]:
    a, b = Provider(default=Reply(text="The answer is 7.")), Provider(default=Reply(text="The answer is 7."))
    with serving(a, b):
        (tmp_path / "gateway.yaml").write_text(CONFIG.format(a=a.url, b=b.url))
        (tmp_path / "policies").mkdir()
        write(tmp_path, PROMPTS)
        yield a, b


def write(folder: Path, rows: list[Any]) -> None:
    (folder / "prompts.jsonl").write_bytes(b"\n".join(orjson.dumps(row) for row in rows))


def run(folder: Path, *words: str) -> Result:
    places = ("--config", folder / "gateway.yaml", "--data-dir", folder / "data", "--policies", folder / "policies")
    asked = ("compare", *words, "--prompts", folder / "prompts.jsonl", *places)
    return CliRunner().invoke(cli, [str(word) for word in asked], env={"COLUMNS": "160"})


def rows(folder: Path) -> list[dict[str, Any]]:
    database = Database(f"sqlite:///{Paths(folder / 'data').sqlite}")
    try:
        with database.read() as connection:
            return [dict(row) for row in connection.execute(select(ledger)).mappings()]
    finally:
        database.close()


def test_answers_are_compared_and_every_call_is_on_the_ledger(tmp_path: Path, pair: tuple[Provider, Provider]) -> None:
    a, b = pair
    a.script(*(Reply(text=f"The answer is {number + 1}.") for number in range(4)))
    b.script(*(Reply(text=f"The answer is {number + 1}.") for number in (0, 1, 5, 3)))
    done = run(tmp_path, "full", "quantised", "--concurrent", "1", "--json")
    assert done.exit_code == 0, done.output
    told = orjson.loads(done.stdout)
    assert [(one["right_a"], one["right_b"], one["agreed"]) for one in told["pairs"]] == [
        (1.0, 1.0, 1.0), (1.0, 1.0, 1.0), (1.0, 0.0, 0.0), (1.0, 1.0, 1.0),
    ]  # fmt: skip
    assert told["as_good"]["mean"] == pytest.approx(0.75)
    assert told["adequate"] == "too few to say"
    booked = rows(tmp_path)
    assert sorted((row["backend"], row["kind"], row["team"], row["outcome"]) for row in booked) == (
        [("full", "shadow", "default", "ok")] * 4 + [("quantised", "shadow", "default", "ok")] * 4
    )
    assert told["spent_usd"] == f"{sum(row['cost_pico'] for row in booked) / 1e12:.15f}".rstrip("0")
    bodies = [one.json for one in a.exchanges]
    assert {(body["model"], body["temperature"], body["max_tokens"]) for body in bodies} == {("m-full", 0.0, 512)}


def test_people_get_tables(tmp_path: Path, pair: tuple[Provider, Provider]) -> None:
    pair[1].script(Fail(400))
    (tmp_path / "policies" / "research.yaml").write_text("team: research\n")
    done = run(tmp_path, "full", "quantised", "--team", "research", "--concurrent", "1")
    assert done.exit_code == 0, done.output
    assert "quantised as good as full" in done.stdout
    assert "3, 1 failed" in done.stdout
    assert "quantised is not shown to be adequate at 0.95 for any difficulty." in done.stdout
    assert "on the ledger under team research (kind shadow)" in done.stdout


def test_it_ends_when_the_money_does(tmp_path: Path, pair: tuple[Provider, Provider]) -> None:
    done = run(
        tmp_path, "full", "quantised", "--max-usd", "0.006", "--concurrent", "1", "--json"
    )  # one costs 0.0042 at worst
    assert done.exit_code == 0, done.output
    told = orjson.loads(done.stdout)
    assert told["stopped"] is None  # what was held and not used is free again
    assert run(tmp_path, "full", "quantised", "--max-usd", "0.004").exit_code == 1
    assert len(pair[0].exchanges) == 4


def test_what_cannot_be_meant_is_told_and_nobody_is_asked(tmp_path: Path, pair: tuple[Provider, Provider]) -> None:
    for words, complaint in [
        (("full", "nobody"), "no backend 'nobody'; known: full, quantised, unpriced"),
        (("full", "unpriced"), "no known price"),
        (("full", "quantised", "--judge", "nobody"), "no backend 'nobody'"),
        (("full", "quantised", "--max-usd", "much"), "--max-usd"),
    ]:
        done = run(tmp_path, *words)
        assert done.exit_code in (1, 2)
        assert complaint in done.output
    for bad in (["x"], [{"text": "x"}], [{"messages": 5}], [PROMPTS[0], PROMPTS[0]]):
        write(tmp_path, bad)
        assert run(tmp_path, "full", "quantised").exit_code == 1
    assert len(pair[1].exchanges) == 0


def test_a_budget_and_a_data_rule_hold(tmp_path: Path, pair: tuple[Provider, Provider]) -> None:
    (tmp_path / "policies" / "poor.yaml").write_text("team: poor\nbudget: {limit_usd: 0.5, window: total}\n")
    (tmp_path / "policies" / "strict.yaml").write_text("team: strict\ndata: {regions: [eu]}\n")
    done = run(tmp_path, "full", "quantised", "--team", "poor", "--max-usd", "1")
    assert (done.exit_code, "has 0.5 USD left" in done.output) == (1, True)
    assert run(tmp_path, "full", "quantised", "--team", "poor", "--max-usd", "0.4").exit_code == 0
    done = run(tmp_path, "full", "quantised", "--team", "strict")
    assert (done.exit_code, "keeps prompts from full" in done.output) == (1, True)


def test_a_judge_is_asked_blind_and_both_ways(tmp_path: Path, pair: tuple[Provider, Provider]) -> None:
    a, b = pair
    write(tmp_path, [{"prompt": "Describe rain."}])
    a.script(Reply(text="Water falls from clouds, in drops."), Reply(text="A"), Reply(text="B"))
    b.script(Reply(text="Wet weather, that comes from above."))
    done = run(tmp_path, "full", "quantised", "--judge", "full", "--json")
    assert done.exit_code == 0, done.output
    told = orjson.loads(done.stdout)
    assert (told["judge"], told["pairs"][0]["agreed"]) == ("full", 1.0)
    assert len(rows(tmp_path)) == 4
