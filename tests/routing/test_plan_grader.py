from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import orjson
import pytest
from click.testing import CliRunner

from gateway.cli.quality.grade import grade
from gateway.routing.difficulty.features import extract
from gateway.routing.difficulty.grader import Grader
from gateway.routing.difficulty.weights_file import ArtefactError
from gateway.routing.strategy.models import ModelAdequacies, fit_adequacies
from gateway.routing.strategy.plan import Plan
from gateway.routing.strategy.plan_file import save_plan
from gateway.routing.strategy.plan_grader import PlanGrader, grader_of
from gateway.routing.strategy.strategy import State, Strategy
from tests.routing.conftest import SPANISH

SONG, RIVER = "Sing me a song about the rivers of the north", "Tell me about the rivers of the north"


def _single(model: str, quality: float, usd: float) -> Strategy:
    state = State(model, {model: (1.0,)})
    return Strategy("one backend", model, quality, usd, {((), ()): state}, (model,))


@pytest.fixture(scope="module")
def adequacies() -> ModelAdequacies:
    """The cheap model cannot sing."""
    chance = random.Random(1)
    songs = np.arange(300) % 2 == 0
    texts = [f"{'Sing me a song' if song else 'Tell me'} about case {number}" for number, song in enumerate(songs)]
    cheap = np.array([float(chance.random() < (0.1 if song else 0.9)) for song in songs])
    qualities = {"cheap": cheap, "best": np.full(300, 0.9), "odd": np.full(300, 0.2)}
    return fit_adequacies([extract(text) for text in texts], qualities, np.arange(300) // 2 % 5)[0]


@pytest.fixture
def path(adequacies: ModelAdequacies, tmp_path: Path) -> Path:
    singles = (_single("cheap", 0.5, 0.001), _single("best", 0.9, 0.01), _single("odd", 0.2, 0.02))
    save_plan(Plan(("cheap", "best", "odd"), singles, singles, adequacies=adequacies), tmp_path / "plan.json")
    return tmp_path / "plan.json"


def test_a_prompt_is_as_hard_as_the_best_model_gains_on_it_over_the_cheapest(path: Path) -> None:
    grader = grader_of(path)
    assert grader.grade(SONG).difficulty > grader.grade(RIVER).difficulty + 0.1


def test_outside_support_a_plan_abstains_as_the_packaged_artefact_does(path: Path) -> None:
    assert grader_of(path).grade(SPANISH).abstained
    assert not grader_of(path).grade(SONG).abstained


def test_the_kind_of_file_is_seen_from_its_content(path: Path, tmp_path: Path) -> None:
    assert type(grader_of(None)) is Grader
    assert type(grader_of(path)) is PlanGrader
    other = tmp_path / "other.npz"
    other.write_bytes(b"PK nothing")
    with pytest.raises(ArtefactError, match=r"other\.npz"):
        grader_of(other)


def test_a_plan_that_tells_no_prompts_apart_is_refused(adequacies: ModelAdequacies) -> None:
    one = (_single("cheap", 0.5, 0.001),)
    for plan in (Plan(("cheap",), one, one, adequacies=adequacies), Plan(("cheap",), one * 2, one * 2)):
        with pytest.raises(ArtefactError, match=r"flat\.json.*cannot grade"):
            PlanGrader(plan, "flat.json")


def test_the_command_grades_by_a_plan(path: Path) -> None:
    lines = b"".join(orjson.dumps({"id": text, "prompt": text}) + b"\n" for text in (SONG, RIVER))
    result = CliRunner().invoke(grade, ["--artefact", str(path)], input=lines)
    assert result.exit_code == 0, result.output
    song, river = (orjson.loads(line)["difficulty"] for line in result.stdout.splitlines())
    assert song > river
