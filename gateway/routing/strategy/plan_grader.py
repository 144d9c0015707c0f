"""Grades difficulty with a plan. The difficulty of a prompt is the expected gain in quality of the plan's best model
over its cheapest model."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from gateway.routing.difficulty.features import Features
from gateway.routing.difficulty.grader import Grader
from gateway.routing.difficulty.weights_file import ArtefactError, load
from gateway.routing.strategy.models import ModelAdequacies
from gateway.routing.strategy.plan import Plan
from gateway.routing.strategy.plan_file import load_plan

SPAN = 4.0
"""Standardised score that corresponds to a gain of 1."""


class PlanGrader(Grader):
    """Scores prompts with the plan's probabilities that models answer well. The packaged classifier decides whether a
    prompt can be graded."""

    def __init__(self, plan: Plan, name: str) -> None:
        """`name`: the file's name, for error messages. Raises ArtefactError if the plan has only one model, or cannot
        estimate how well models answer."""
        super().__init__(load())
        singles = sorted(plan.singles, key=lambda single: (single.quality, -single.usd))
        if plan.adequacies is None or len(singles) < 2:
            raise ArtefactError(f"{name}: this plan does not distinguish prompts, so it cannot grade them")
        self._adequacies: ModelAdequacies = plan.adequacies
        (self._strong,) = singles[-1].first
        (self._weak,) = min(singles[:-1], key=lambda single: single.usd).first

    @classmethod
    def load(cls, path: Path | None = None) -> Self:
        """Load the grader of the plan at `path`. Raises ArtefactError, OSError."""
        if path is None:
            raise ArtefactError("there is no packaged plan")
        return cls(load_plan(path), str(path))

    def score(self, features: Features) -> float:
        """The raw score of difficulty: P(the best model answers well) − P(the cheapest model answers well), scaled like
        the packaged classifier's scores."""
        chances = self._adequacies.of_features(features)
        gain = chances[self._strong] - chances[self._weak]
        return self.artefact.centre + self.artefact.spread * SPAN * gain


def grader_of(path: Path | None) -> Grader:
    """Load the grader in the file `path`, which is a classifier or a plan. If `path` is None, load the packaged
    classifier. Raises ArtefactError, OSError."""
    if path is None:
        return Grader.load()
    with path.open("rb") as file:
        plan = file.read(1) == b"{"
    return PlanGrader.load(path) if plan else Grader.load(path)
