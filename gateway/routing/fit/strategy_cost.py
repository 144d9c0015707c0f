"""Measures how often a strategy calls each model, and how much of the strategy's cost each model causes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gateway.routing.fit.outcomes import Outcomes
from gateway.routing.fit.replay import Row, ask
from gateway.routing.strategy.strategy import RunState, Step, Strategy

MOST = 1000
"""Maximum number of prompts that are replayed."""


def with_spending(strategy: Strategy, outcomes: Outcomes, features: NDArray[np.float64]) -> Strategy:
    """Add to `strategy` its `asks`: the calls and costs of each model, measured on at most `MOST` prompts. `features`:
    shape (n prompts, d)."""
    calls: dict[str, int] = {}
    usd: dict[str, float] = {}
    places = np.unique(np.linspace(0, len(outcomes) - 1, min(MOST, len(outcomes))).astype(np.int64)).tolist()
    for place in places:
        row = Row(outcomes, place)
        for answer in ask(
            RunState(strategy, tuple(features[place].tolist()), {each: each for each in row.columns}), row
        ):
            calls[answer.backend] = calls.get(answer.backend, 0) + 1
            usd[answer.backend] = usd.get(answer.backend, 0.0) + row.usd_of(answer.backend)
    scale = strategy.usd / (sum(usd.values()) or 1.0)
    asks = {model: Step(calls[model] / len(places), usd[model] * scale) for model in sorted(calls)}
    return replace(strategy, asks=asks)
