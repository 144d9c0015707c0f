"""Fits a plan to recorded outcomes: first the probabilities that each model answers well, then the strategies."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gateway.routing.difficulty.features import extract, normalise
from gateway.routing.fit.difficulty import source
from gateway.routing.fit.evaluation import DataError
from gateway.routing.fit.frontier import OUTER, Frontier, Progress, build
from gateway.routing.fit.outcomes import Outcomes, Prices, read_outcomes
from gateway.routing.fit.search import Evidence
from gateway.routing.fit.selection import CONFIDENCE
from gateway.routing.fit.strategy_cost import with_spending
from gateway.routing.strategy.models import fit_adequacies
from gateway.routing.strategy.plan import Plan
from gateway.routing.strategy.prompt_features import fit_prompt_features

LEAST = 100
"""Minimum number of prompts for a fit."""
STEM = 160
"""Number of characters at the beginning of a prompt. Prompts that are equal in these characters count as variants of
one question."""


def fit_plan(
    paths: Sequence[Path], prices: Prices, progress: Progress, *, seed: int = 0
) -> tuple[Plan, Frontier, Outcomes]:
    """Read outcomes, and fit a plan to them. `progress(line)`: called with a line of text during the work. Raises
    DataError, OSError."""
    outcomes = read_outcomes(paths, prices)
    if len(outcomes) < LEAST:
        raise DataError(f"{len(outcomes)} usable prompts are too few to fit on; collect at least {LEAST}")
    plan, frontier = fit_outcomes(outcomes, progress, seed=seed)
    plan = replace(plan, provenance={**plan.provenance, "data": [source(path) for path in paths]}, prices=dict(prices))
    return plan, frontier, outcomes


def fit_outcomes(outcomes: Outcomes, progress: Progress, *, seed: int = 0) -> tuple[Plan, Frontier]:
    """Fit a plan to `outcomes`."""
    progress(f"{len(outcomes)} prompts, {len(outcomes.models)} models: fitting adequacies")
    features = [extract(prompt) for prompt in outcomes.prompts]
    qualities = {model: outcomes.quality[:, place] for place, model in enumerate(outcomes.models)}
    adequacies, chances = fit_adequacies(features, qualities, _folds(outcomes.prompts))
    lengths = [len(prompt) for prompt in outcomes.prompts]
    reading = fit_prompt_features(chances, lengths)
    matrix = reading.matrix(chances, lengths)
    frontier = build(outcomes.models, Evidence.of(outcomes, matrix), progress, seed=seed)
    provenance = {
        "made": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "method": "backward induction over who was asked and who agrees; measured by cross-validation",
        "prompts": len(outcomes),
        "settings": {"folds": OUTER, "confidence": CONFIDENCE, "seed": seed},
    }
    singles = tuple(point.strategy for point in frontier.singles)
    strategies, singles, reserves = (
        tuple(with_spending(each, outcomes, matrix) for each in group)
        for group in (frontier.strategies, singles, frontier.reserves)
    )
    return Plan(outcomes.models, strategies, singles, reserves, adequacies, reading, provenance), frontier


def _folds(prompts: Sequence[str]) -> NDArray[np.int64]:
    """The fold (0..4) of each prompt. All variants of a question are in the same fold."""
    stems = [hashlib.blake2b(normalise(prompt)[:STEM].encode(), digest_size=4).digest() for prompt in prompts]
    return np.array([int.from_bytes(stem) % 5 for stem in stems], dtype=np.int64)
