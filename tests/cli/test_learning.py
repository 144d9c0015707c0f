"""What was learnt and what is on trial, as it is printed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import cli
from gateway.domain.routing.class_trial import Comparison, TrialKey
from gateway.ledger.store import class_trials
from gateway.ledger.store.evidence import Finding, write
from gateway.routing.strategy.plan import Plan
from gateway.routing.strategy.plan_file import save_plan
from gateway.routing.strategy.strategy import State, Strategy
from gateway.settings.gateway import Paths
from gateway.state.sql.database import Database


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "gateway.yaml").write_text("backends: []\nlocal_model: {enabled: false}\n")
    return tmp_path


def run(folder: Path, *arguments: str) -> Result:
    common = ["--config", str(folder / "gateway.yaml"), "--data-dir", str(folder / "data")]
    return CliRunner().invoke(cli, ["router", *arguments, *common])


def json(folder: Path, *arguments: str) -> Any:
    result = run(folder, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return orjson.loads(result.stdout)


def judge(
    folder: Path, now: float, *scores: float, team: str = "search", source: str = "shadow", weight: float = 1.0
) -> None:
    database = Database(f"sqlite:///{Paths(folder / 'data').sqlite}")
    database.upgrade()
    with database.begin() as connection:
        findings = [
            Finding("r", team, "small", "large", source, "agreement", 0.9, 0.9, score, weight) for score in scores
        ]
        write(connection, findings, now)
    database.close()


def test_before_anything_was_judged_it_says_how_to_begin(folder: Path) -> None:
    assert "set learning.share" in run(folder, "learned").output
    assert json(folder, "learned") == {"backends": [], "escalations": [], "classes": [], "spent": []}


def test_what_was_measured_stands_beside_what_was_promised(folder: Path) -> None:
    judge(folder, time.time(), *[1.0] * 20, *[0.0] * 20)
    judge(folder, time.time(), *[1.0] * 20, team="chat")
    (search,) = json(folder, "learned", "--team", "search")["backends"]
    assert (search["backend"], search["judged"], search["below"]) == ("small", 40, True)
    assert search["measured"] < search["high"] < search["target"] == 0.9
    assert len(json(folder, "learned")["backends"]) == 2
    assert "margin" in run(folder, "learned").output


def test_how_often_asking_on_was_for_nothing_is_told_and_counts_nothing(folder: Path) -> None:
    judge(folder, time.time(), 1.0, 1.0, 1.0, 0.0, source="escalation", weight=0.0)
    assert json(folder, "learned")["backends"] == []
    assert json(folder, "learned")["escalations"] == [
        {"team": "search", "backend": "small", "compared": 4, "agreed": 0.75}
    ]
    assert "75% agree with the stronger backend" in " ".join(run(folder, "learned").output.split())


def test_how_far_each_class_is_open_is_told(folder: Path) -> None:
    judge(folder, time.time())
    database = Database(f"sqlite:///{Paths(folder / 'data').sqlite}")
    key = TrialKey("search", "es/tools/opening", "small", "large", 0.9)
    with database.begin() as connection:
        for _ in range(40):
            class_trials.see(connection, key, Comparison(1.0, served=False), time.time())
    database.close()
    (one,) = json(folder, "learned", "--team", "search")["classes"]
    assert (one["class"], one["backend"], one["share"], one["compared"]) == ("es/tools/opening", "small", 0.05, 40)
    judge(folder, time.time(), 1.0, team="chat")
    assert json(folder, "learned", "--team", "chat")["classes"] == []
    told = " ".join(run(folder, "learned").output.split())
    assert "small serves 5% of sessions; 40 compared, 0 undecided; 1.00 as good" in told


def test_a_plan_is_put_on_trial_and_status_tells(folder: Path) -> None:
    single = Strategy("one backend", "m", 0.9, 0.001, {((), ()): State("m", {"m": (1.0,)})}, ("m",))
    save_plan(Plan(("m",), (single,), (single,)), folder / "plan.json")
    staged = json(folder, "trial", str(folder / "plan.json"))
    assert staged["state"] == "shadow"
    (one,) = json(folder, "status")["on_trial"]
    assert (one["id"], one["state"]) == (staged["id"], "shadow")
    assert staged["id"][:16] in run(folder, "status").output
    assert json(folder, "rollback") == {"rolled_back": False}


def test_what_is_no_plan_is_not_put_on_trial(folder: Path) -> None:
    result = run(folder, "trial", str(folder / "gateway.yaml"))
    assert result.exit_code == 1
    assert "not a router artefact" in result.output


@pytest.mark.parametrize(
    ("models", "told"), [(("m", "other"), "No backend has other"), (("other",), "no backend has any")]
)
def test_models_that_no_backend_has_are_told(folder: Path, models: tuple[str, ...], told: str) -> None:
    (folder / "gateway.yaml").write_text("backends: [{name: m, kind: local, model: llama}]\n")
    single = Strategy(
        "one backend", models[0], 0.9, 0.001, {((), ()): State(models[0], {models[0]: (1.0,)})}, models[:1]
    )
    save_plan(Plan(models, (single,), (single,)), folder / "plan.json")
    result = run(folder, "trial", str(folder / "plan.json"))
    assert told in result.output
    assert result.exit_code == (0 if "m" in models else 1)
