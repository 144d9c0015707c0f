"""The decision as a person sees it, with what would have changed it."""

from __future__ import annotations

import time
from pathlib import Path

import orjson
import pytest
from blockbuster import BlockBuster
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from gateway.domain.routing.class_trial import Comparison, TrialKey
from gateway.ledger.store import class_trials
from gateway.settings.gateway import Paths
from gateway.state.sql.database import Database
from tests.routing.conftest import EASY, HARD, SPANISH

CONFIG = """\
backends:
  - {name: small, kind: openai, base_url: "http://127.0.0.1:9/v1", model: a, tier: small,
     price: {input: 0.1, output: 0.4}}
  - {name: large, kind: openai, base_url: "http://127.0.0.1:9/v1", model: b, tier: large, price: {input: 1, output: 4}}
  - {name: far, kind: openai, base_url: "http://127.0.0.1:9/v1", model: c, tier: hosted, region: "[us]",
     price: {input: 3, output: 9}}
"""
POLICY = "team: search\nmodels: {auto: {quality: 0.9}}\ndata: {regions: ['', eu]}\n"


@pytest.fixture(autouse=True)
def may_block(no_blocking_calls: BlockBuster) -> None:
    """A command serves nobody while it reads its files."""
    no_blocking_calls.deactivate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gateway.yaml").write_text(CONFIG)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "search.yaml").write_text(POLICY)
    return tmp_path


def run(folder: Path, *words: str) -> Result:
    places = ("--config", folder / "gateway.yaml", "--data-dir", folder / "data", "--policies", folder / "policies")
    return CliRunner().invoke(cli, ["explain", *words, *map(str, places)], env={"COLUMNS": "160"})


def test_it_says_who_serves_and_what_would_change_that(folder: Path) -> None:
    easy = orjson.loads(run(folder, EASY, "--team", "search", "--json").stdout)
    assert easy["order"] == ["small", "large"]
    assert easy["considered"][2]["excluded"] == "region [us]; the policy allows , eu"
    assert any(
        one.startswith("large would be chosen if the prompt were harder (difficulty ") for one in easy["what_if"]
    )
    hard = orjson.loads(run(folder, HARD, "--team", "search", "--json").stdout)
    assert hard["order"] == ["large", "small"]
    assert any(one.startswith("small would be chosen if the policy required at most ") for one in hard["what_if"])


def test_people_get_sentences(folder: Path) -> None:
    text = run(folder, HARD, "--team", "search").stdout
    assert "large serves:" in text
    assert "· small would be chosen if the prompt were easier (difficulty" in text
    assert "region [us]" in text


def test_a_backend_asked_for_by_name_is_no_choice(folder: Path) -> None:
    told = orjson.loads(run(folder, EASY, "--team", "search", "--model", "small", "--json").stdout)
    assert (told["order"], told["what_if"]) == (["small"], [])


def test_a_prompt_that_the_grader_does_not_know_is_decided_by_the_stored_trials_of_its_class(folder: Path) -> None:
    (folder / "policies" / "search.yaml").write_text(f"{POLICY}learning: {{classes: 50%}}\n")
    assert "small was not compared yet" in run(folder, SPANISH, "--team", "search").stdout
    database = Database(f"sqlite:///{Paths(folder / 'data').sqlite}")
    database.upgrade()
    key = TrialKey("search", "es/text/opening", "small", "large", 0.9)
    with database.begin() as connection:
        for _ in range(200):
            class_trials.see(connection, key, Comparison(1.0, served=True), time.time())
    database.close()
    text = run(folder, SPANISH, "--team", "search").stdout
    assert "small serves: class es/text/opening: small serves 100% of sessions (1.00 as good over" in text
