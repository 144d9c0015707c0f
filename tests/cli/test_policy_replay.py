"""`thriftgate policy replay`: what recorded requests would have cost under other rules."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from gateway.settings.gateway import Paths
from gateway.state.sql.database import Database
from tests.ledger.booked import book, roll_up, row

CONFIG = """\
backends:
  - {name: small, kind: openai, base_url: "http://127.0.0.1:9/v1", model: s, tier: small,
      capabilities: [tools], price: {input: 0.1, output: 0.1}}
  - {name: large, kind: openai, base_url: "http://127.0.0.1:9/v1", model: l, tier: large,
      capabilities: [tools], price: {input: 10, output: 10, cached_input: 1}}
"""
NOW = time.time() - 3600
LARGE = 300 * 10**7
"""Pico-dollars of 100 input and 200 output tokens at `large`."""


def asked(**facts: Any) -> dict[str, Any]:
    usual = {"at": NOW, "backend": "large", "input_tokens": 100, "cached_tokens": 0, "output_tokens": 200}
    return row(**{**usual, "cost_pico": LARGE, "difficulty": 0.02, "traffic_class": "en/text/opening", **facts})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gateway.yaml").write_text(CONFIG)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "search.yaml").write_text("team: search\nmodels: {auto: large}\n")
    return tmp_path


def fill(folder: Path, *rows: dict[str, Any], sums: dict[str, Any] | None = None) -> None:
    database = Database(f"sqlite:///{Paths(folder / 'data').sqlite}")
    database.upgrade()
    book(database, *rows)
    if sums:
        roll_up(database, **sums)
    database.close()


def run(folder: Path, new: str, *words: str) -> Result:
    (folder / "new.yaml").write_text(new)
    places = ("--config", folder / "gateway.yaml", "--data-dir", folder / "data", "--policies", folder / "policies")
    return CliRunner().invoke(cli, ["policy", "replay", str(folder / "new.yaml"), *words, *map(str, places)])


def team_of(result: Result) -> dict[str, Any]:
    (found,) = orjson.loads(result.stdout)["teams"]
    return dict(found)


def test_an_easy_request_moves_and_is_priced_at_its_new_backend(folder: Path) -> None:
    fill(folder, asked())
    found = team_of(run(folder, "team: search\nmodels: {auto: small}\n", "--json"))
    assert found["routes"] == [{"from": "large", "to": "small", "requests": 1}]
    assert (found["now_usd"], found["low_usd"], found["high_usd"]) == ("0.003", "0.00003", "0.00003")


def test_the_routers_own_choice_decides_and_an_unknown_abstention_is_a_range(folder: Path) -> None:
    fill(folder, asked())  # under the alias `large` every grade leads to `large`, so the grade stays unknown
    found = team_of(run(folder, "team: search\nmodels: {auto: [small, large]}\n", "--json"))
    assert found["routes"] == [{"from": "large", "to": "small or large", "requests": 1}]
    assert (found["low_usd"], found["high_usd"]) == ("0.00003", "0.003")


def test_a_grade_that_does_not_lead_to_the_recorded_backend_is_not_used(folder: Path) -> None:
    (folder / "policies" / "search.yaml").write_text("team: search\nmodels: {auto: [small, large]}\n")
    cost = 300 * 10**5
    fill(folder, asked(backend="small", cost_pico=cost, tier="small"))
    found = team_of(
        run(folder, "team: search\nmodels: {auto: {candidates: [small, large], quality: 100%}}\n", "--json")
    )
    assert found["routes"] == [{"from": "small", "to": "large", "requests": 1}]
    assert found["low_usd"] == found["high_usd"] == "0.003"


def test_the_difficulty_of_tool_calls_is_an_abstention(folder: Path) -> None:
    fill(folder, asked(difficulty=0.5, traffic_class="en/tools/opening"))
    found = team_of(run(folder, "team: search\nmodels: {auto: [small, large]}\n", "--json"))
    assert (found["moved"], found["decided_again"]) == (0, 1)


def test_a_request_that_the_present_policy_would_not_send_there_keeps_its_cost(folder: Path) -> None:
    fill(folder, asked(backend="gone"))
    found = team_of(run(folder, "team: search\nmodels: {auto: small}\n", "--json"))
    assert found["unknown"] == {"the present policy does not lead to the recorded backend": 1}
    assert found["high_usd"] == found["not_decided_usd"] == "0.003"


def test_prompts_cached_at_the_old_backend_make_a_range(folder: Path) -> None:
    (folder / "policies" / "search.yaml").write_text("team: search\nmodels: {auto: small}\n")
    fill(folder, asked(backend="small", input_tokens=100, cached_tokens=900, output_tokens=0, cost_pico=10**8))
    found = team_of(run(folder, "team: search\nmodels: {auto: large}\n", "--json"))
    assert (found["low_usd"], found["high_usd"]) == ("0.0019", "0.01")


def test_hits_cost_what_they_saved_once_the_cache_is_off(folder: Path) -> None:
    fill(folder, asked(attempt=0, cache="exact", backend="", cost_pico=0, saved_pico=LARGE, difficulty=None))
    assert team_of(run(folder, "team: search\nmodels: {auto: large}\n", "--json"))["high_usd"] == "0"
    off = team_of(run(folder, "team: search\nmodels: {auto: large}\ncache: {enabled: false}\n", "--json"))
    assert (off["now_usd"], off["high_usd"]) == ("0", "0.003")


def test_refusals_and_spent_budgets_are_listed(folder: Path) -> None:
    (folder / "policies" / "search.yaml").write_text("team: search\nmodels: {auto: large, old: large}\n")
    fill(folder, asked(), asked(at=NOW + 1), asked(at=NOW + 2, model_asked="old"))
    text = "team: search\nmodels: {auto: large}\nbudget: {limit_usd: 0.003, window: total}\n"
    found = team_of(run(folder, text, "--json"))
    assert found["refused"] == {"model_not_found": 1}
    assert found["budgets_then"][0]["requests_after"] == 2
    assert found["budgets_then"][0]["usd_after"] == "0.003"
    assert "is spent at" in run(folder, text).output


def test_the_status_is_1_only_above_the_allowed_increase(folder: Path) -> None:
    (folder / "policies" / "search.yaml").write_text("team: search\nmodels: {auto: small}\n")
    fill(folder, asked(backend="small", cost_pico=10**9))
    dearer = "team: search\nmodels: {auto: large}\n"
    assert run(folder, dearer, "--max-increase", "250").exit_code == 0
    result = run(folder, dearer, "--max-increase", "150")
    assert result.exit_code == 1
    assert "The cost may rise by up to 200.0%, more than 150%." in result.output


def test_a_base_replaces_the_base_of_all_teams_that_extend_it(folder: Path) -> None:
    (folder / "policies" / "base.yaml").write_text("base: cheap\nmodels: {auto: large}\n")
    (folder / "policies" / "search.yaml").write_text("team: search\nextends: cheap\n")
    fill(folder, asked())
    found = team_of(run(folder, "base: cheap\nmodels: {auto: small}\n", "--json"))
    assert (found["team"], found["moved"]) == ("search", 1)


def test_escalated_attempts_belong_to_their_request_and_sums_are_only_counted(folder: Path) -> None:
    (folder / "policies" / "search.yaml").write_text("team: search\nmodels: {auto: small}\n")
    first = asked(id="a-1", request_id="a", backend="small", outcome="escalated", cost_pico=10**9)
    then = asked(id="a-2", request_id="a", attempt=2, escalated=True)
    fill(folder, first, then, sums={"at": NOW, "team": "search", "requests": 7})
    found = team_of(run(folder, "team: search\nmodels: {auto: small}\n", "--json"))
    assert (found["requests"], found["now_usd"], found["high_usd"]) == (1, "0.004", "0.004")
    assert (found["moved"], found["rolled_up"]) == (0, 7)


def test_mistakes_of_the_new_file_are_reported_with_their_line(folder: Path) -> None:
    fill(folder, asked())
    result = run(folder, "team: search\nbudget: {limit_usd: -1}\n")
    assert "new.yaml:2" in str(result.exception)
