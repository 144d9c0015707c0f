"""A plan's promises on outcomes that it was not fitted on: kept on others of the kind, broken on harder ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import pytest
from click.testing import CliRunner

from gateway.cli.main import cli
from gateway.cli.quality.router_tables import kept_promises
from gateway.routing.fit.held_out import kept
from gateway.routing.fit.plan import fit_outcomes
from gateway.routing.strategy.hull import savings
from gateway.routing.strategy.plan import Plan
from gateway.routing.strategy.plan_file import save_plan
from tests.routing.recorded import POOL, RIGHT, outcomes, rows, write


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return fit_outcomes(outcomes(tmp_path_factory.mktemp("fit"), rows(400)), lambda line: None)[0]


def test_promises_are_kept_on_prompts_of_the_kind(plan: Plan, tmp_path: Path) -> None:
    found = kept(plan, outcomes(tmp_path, rows(600, seed=5)))
    assert found[0].wanted == plan.strategies[0].quality
    assert found[-1].wanted == plan.strategies[-1].quality
    for each in found:
        assert each.reached == pytest.approx(each.wanted, abs=0.05)
        assert each.reached_low < each.reached < each.reached_high
        assert each.saving == pytest.approx(1 - each.usd / each.hull_usd)
        assert each.saving_low <= each.saving_high
    assert max(each.saving_low for each in found) > 0.2
    assert found[0].calls < found[-1].calls


def test_promises_that_are_broken_are_told(plan: Plan, tmp_path: Path) -> None:
    harder = {model: rate - 0.3 for model, rate in RIGHT.items()}
    found = kept(plan, outcomes(tmp_path, rows(300, seed=6, right=harder)))
    assert all(each.reached_high < each.wanted for each in found)
    assert kept_promises(found) == "reached or within its interval at 0 of 7 qualities"


def test_a_draw_between_two_models_saves_nothing_on_their_own_hull() -> None:
    quality = np.column_stack([np.tile([1.0, 0.0], 50), np.ones(100)])
    usd = np.tile([1.0, 3.0], (100, 1))
    even = np.full((1, 100), 0.01)
    assert savings(quality.mean(1), usd.mean(1), quality, usd, even).tolist() == pytest.approx([0.0])
    assert savings(quality.mean(1), usd.mean(1) / 2, quality, usd, even).tolist() == pytest.approx([0.5])


def test_the_command_prints_it(plan: Plan, tmp_path: Path) -> None:
    data = write(tmp_path / "held.jsonl", rows(200, seed=7))
    (tmp_path / "pool.json").write_bytes(orjson.dumps(POOL))
    save_plan(plan, tmp_path / "plan.json")
    given = ["router", "evaluate", str(data), "--pool", str(tmp_path / "pool.json")]
    found = CliRunner().invoke(cli, [*given, "--artefact", str(tmp_path / "plan.json"), "--json"])
    assert found.exit_code == 0, found.output
    assert len(orjson.loads(found.stdout)) == 7
    without = CliRunner().invoke(cli, given)
    assert without.exit_code == 2
    assert "--pool needs --artefact" in without.output
