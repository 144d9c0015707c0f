"""Evaluates a plan on outcomes that were not used to fit it, and compares it with single models. The comparison is with
their hull: the best quality that one model, or a mix of two models, reaches at each cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.routing.fit.outcomes import Outcomes
from gateway.routing.fit.replay import replay
from gateway.routing.strategy.hull import corners, cost_of, savings
from gateway.routing.strategy.plan import Plan

Array = NDArray[np.float64]

TARGETS = 7


@dataclass(frozen=True, slots=True)
class Kept:
    """The result of a plan for one target quality. Costs are in US dollars per request. Intervals are 95 % bootstrap
    intervals over the prompts."""

    wanted: float
    reached: float
    reached_low: float
    reached_high: float
    calls: float
    usd: float
    hull_usd: float
    """Cost at which single models have the same quality as the plan on these outcomes: the cost of the best choice of a
    single model, or of a random mix of two models. If no model is as good as the plan, this is the cost of the best
    model."""
    saving: float
    saving_low: float
    saving_high: float


def kept(plan: Plan, outcomes: Outcomes, *, rounds: int = 400, seed: int = 0) -> list[Kept]:
    """Evaluate `plan` on `outcomes` at several target qualities. They lie between the qualities of its cheapest and its
    best strategy. `rounds`: number of bootstrap samples."""
    known = ~np.isnan(outcomes.quality)
    quality = np.where(known, outcomes.quality, np.nanmean(outcomes.quality, 0))
    usd = np.where(known, outcomes.usd, np.where(known, outcomes.usd, 0).sum(0) / known.sum(0))
    count = len(outcomes)
    weights = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), rounds) / count
    wanted = np.linspace(plan.strategies[0].quality, plan.strategies[-1].quality, TARGETS)
    return [_kept(each, plan, outcomes, quality, usd, weights) for each in np.unique(wanted).tolist()]


def _kept(wanted: float, plan: Plan, outcomes: Outcomes, quality: Array, usd: Array, weights: Array) -> Kept:
    played = list(replay(outcomes, plan, wanted))
    reached = np.array([each.quality for each in played])
    spent = np.array([each.usd for each in played])
    hull = corners(usd.mean(0), quality.mean(0))
    rival = float(cost_of(float(reached.mean()), usd.mean(0)[hull], quality.mean(0)[hull]))
    low, high = np.percentile(weights @ reached, [2.5, 97.5])
    less, more = np.percentile(savings(reached, spent, quality, usd, weights), [2.5, 97.5])
    calls = sum(len(each.called) for each in played) / len(played)
    cost = float(spent.mean())
    return Kept(
        wanted,
        float(reached.mean()),
        float(low),
        float(high),
        calls,
        cost,
        rival,
        1 - cost / rival,
        float(less),
        float(more),
    )
