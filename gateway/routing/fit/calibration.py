"""Converts scores to probabilities that a weaker model is as good as the reference (calibration)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gateway.routing.difficulty.ridge import Array, logistic
from gateway.routing.difficulty.weights_file import Curves
from gateway.routing.fit.corpus import Corpus

LOSSES = np.concatenate([np.linspace(0.0, 0.1, 21), np.linspace(0.11, 0.5, 40)])
EVERYTHING = 30.0
"""A standardised score that is higher than the score of any prompt."""
NEAR = (0.5, 0.95)
"""Two shares of the distance in quality from a set's weak model to its strong model. A model counts as slightly weaker
if its quality lies between these shares of the distance."""


def curves(corpus: Corpus, standard: Array) -> Curves:
    """Fit two curves that convert a standardised score to the probability that a weaker model's answer is as good as
    the strong model's. The first curve is for much weaker models, the second for models within `NEAR`. `standard`:
    scores of prompts that were not used for training, shape (n,)."""
    below = (np.arange(len(corpus)), (corpus.weak >= corpus.strong).astype(np.float64))
    pairs = [below, _near(corpus) if any(each.qualities for each in corpus.outcomes) else below]
    coefficients, cutoffs = [], []
    for prompts, as_good in pairs:
        if not len(prompts):
            prompts, as_good = below
        weights = _even(corpus.sets[prompts])
        intercept, slope = logistic(standard[prompts], as_good, weights)
        coefficients.append((intercept, slope))
        adequacy = 1 / (1 + np.exp(-(intercept + slope * standard[prompts])))
        cutoffs.append(_cutoffs(standard[prompts], adequacy, weights))
    return Curves(np.array(coefficients), LOSSES, np.array(cutoffs))


def _even(sets: NDArray[np.int64]) -> Array:
    sizes = np.bincount(sets)
    weights: Array = 1.0 / (sizes[sets] * np.count_nonzero(sizes))
    return weights


def _near(corpus: Corpus) -> tuple[NDArray[np.int64], Array]:
    prompts, as_good = [], []
    for number in range(len(corpus.names)):
        members = np.flatnonzero(corpus.sets == number).tolist()
        for model in sorted({model for each in members for model in corpus.outcomes[each].qualities}):
            known = [each for each in members if model in corpus.outcomes[each].qualities]
            quality = np.array([corpus.outcomes[each].qualities[model] for each in known])
            weak, strong = corpus.weak[known], corpus.strong[known]
            closed = (quality.mean() - weak.mean()) / max(strong.mean() - weak.mean(), 1e-9)
            if NEAR[0] <= closed <= NEAR[1]:
                prompts.append(np.array(known, dtype=np.int64))
                as_good.append((quality >= strong).astype(np.float64))
    if not prompts:
        return np.zeros(0, np.int64), np.zeros(0)
    return np.concatenate(prompts), np.concatenate(as_good)


def _cutoffs(standard: Array, adequacy: Array, weights: Array) -> Array:
    """For each loss in `LOSSES`: the highest score of a prompt that the weaker model may answer. A loss is an allowed
    share of worse answers. Arguments: shape (n,). Result: shape (len(`LOSSES`),)."""
    order = np.argsort(standard)
    lost = np.cumsum(weights[order] * (1 - adequacy[order]))
    last = np.searchsorted(lost, LOSSES, side="right") - 1
    cutoffs: Array = np.where(last < 0, -EVERYTHING, standard[order][np.maximum(last, 0)])
    cutoffs[last == len(order) - 1] = EVERYTHING
    return cutoffs


def calibration_error(corpus: Corpus, standard: Array, fitted: Curves, parts: int = 10) -> float:
    """The mean absolute difference between the estimated and the measured adequacy of the weak model. The prompts are
    sorted by estimate and divided into `parts` groups; the difference is computed for each group. `standard`: shape
    (n,)."""
    intercept, slope = fitted.coefficients[0]
    promised = 1 / (1 + np.exp(-(intercept + slope * standard)))
    measured = (corpus.weak >= corpus.strong).astype(np.float64)
    weights = _even(corpus.sets)
    order = np.argsort(promised)
    share = np.cumsum(weights[order])
    part = np.minimum((share * parts).astype(np.int64), parts - 1)
    total = np.bincount(part, weights[order])
    gap = np.bincount(part, weights[order] * (promised - measured)[order])
    return float(np.abs(gap).sum() / total.sum())
