"""Estimates for each model the probability that it answers a prompt well. The estimators are fitted offline and used
for each request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from gateway.routing.difficulty.features import BINS, WORD_BITS, Features, Floats, extract
from gateway.routing.difficulty.ridge import Array, Design, solve
from gateway.routing.difficulty.scorer import CLIP

GOOD = 0.5
"""Minimum quality of an answer that counts as good."""
RANK = 4
"""Maximum number of scores per prompt (r). With only a few thousand prompts, further scores would be noise."""
PENALTY = 15.0
LEXICAL_SCALE = 0.1
SHRINKAGE = 2.0
"""Strength with which the slopes of a calibration are pulled towards their earlier values."""
LEVEL_SHRINKAGE = 0.1
BEND_SHRINKAGE = 8.0


@dataclass(frozen=True, slots=True)
class ModelAdequacies:
    """Estimates P(quality ≥ 0.5) of each of m models, from r scores of the prompt. The scores come from a reduced-rank
    regression (Izenman 1975). The probability is logistic in the scores and their squares."""

    models: tuple[str, ...]
    places: NDArray[np.int64]
    """Bins of n-grams that occurred at least twice in training, ascending."""
    weights: Floats
    """Weights of the bins in the scores, `len(places)` × r. They are already multiplied by inverse document
    frequencies."""
    idf: Floats
    """Inverse document frequency of each of `places`."""
    lexical: Floats
    """An array of 2 + r rows for the 46 lexical counts: means, standard deviations, then r rows of weights per standard
    deviation."""
    intercepts: Floats
    """Intercepts of the scores, r."""
    curves: Array
    """For each of m models, the intercept, the slopes of the r scores and the slopes of their squares: m × (1 + 2r)."""

    def of(self, text: str) -> dict[str, float]:
        """The probability of a good answer to the prompt `text`, as model → P(quality ≥ 0.5)."""
        return self.of_features(extract(text))

    def of_features(self, features: Features) -> dict[str, float]:
        """The probability of a good answer to a prompt with these features, as model → P(quality ≥ 0.5)."""
        chances = _chance(self.curves, self.scores(features)[None])[0]
        return dict(zip(self.models, chances.tolist(), strict=True))

    def scores(self, features: Features) -> Array:
        """The r scores of a prompt. The calibration converts them to probabilities."""
        found = np.minimum(np.searchsorted(self.places, features.bins), len(self.places) - 1)
        known = self.places[found] == features.bins
        weighted = np.where(known, features.counts * self.idf[found], 0)
        mean, deviation = self.lexical[:2]
        total = self.intercepts + self.lexical[2:] @ ((features.lexical - mean) / deviation).clip(-CLIP, CLIP)
        for block in (slice(0, features.word_bins), slice(features.word_bins, None)):
            length = np.sqrt(weighted[block] @ weighted[block])
            if length:
                total = total + weighted[block] @ self.weights[found[block]] / length
        return np.asarray(total, dtype=np.float64)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """All arrays that must be stored. Weights are rounded to one byte. The models' names are not included."""
        step = np.maximum(np.abs(self.weights).max(0), 1e-12) / 127
        return {
            "places": np.diff(self.places, prepend=0).astype(np.uint32),
            "weights": np.round(self.weights / step).astype(np.int8),
            "step": step.astype(np.float32),
            "idf": self.idf.astype(np.float16),
            "lexical": self.lexical,
            "intercepts": self.intercepts,
            "curves": self.curves,
        }

    @classmethod
    def read(cls, models: Sequence[str], arrays: Mapping[str, NDArray[np.generic]]) -> Self:
        """Make an instance from the arrays that the method `arrays` returned. Raises KeyError if an array is missing,
        and ValueError if the shapes do not match."""
        weights = arrays["weights"].astype(np.float32) * arrays["step"].astype(np.float32)
        curves = arrays["curves"].astype(np.float64)
        if curves.shape != (len(models), 2 * weights.shape[1] + 1) or len(weights) != len(arrays["places"]):
            raise ValueError("the arrays of the models' adequacies do not belong together")
        return cls(
            tuple(models),
            np.cumsum(arrays["places"].astype(np.int64)),
            weights,
            arrays["idf"].astype(np.float32),
            arrays["lexical"].astype(np.float32),
            arrays["intercepts"].astype(np.float32),
            curves,
        )


def fit_adequacies(
    features: Sequence[Features], qualities: Mapping[str, Array], folds: NDArray[np.int64]
) -> tuple[ModelAdequacies, Array]:
    """Fit on n measured prompts. `qualities`: model → quality 0..1, shape (n,); NaN means not called. `folds`: number
    of each prompt's fold, shape (n,); variants of one question have the same fold.

    Returns the fit, and probabilities of shape (n, m). The probabilities of a prompt come from a fit without the
    prompt's fold.
    """
    if not qualities or not features:
        raise ValueError("adequacies need at least one model and one prompt")
    outcomes = np.column_stack([np.asarray(each, dtype=np.float64) for each in qualities.values()])
    good = np.where(np.isnan(outcomes), np.nan, outcomes >= GOOD)
    targets, trust = _directions(good)
    design, places, idf, lexical = _design(features)
    parts = np.unique(folds)
    seen = np.ones((len(parts) + 1, len(features)), dtype=np.float32)
    for row, part in enumerate(parts):
        seen[row, folds == part] = 0
    rank = targets.shape[1]
    solution, intercepts = solve(
        design,
        np.tile(targets, len(seen)).astype(np.float32),
        np.repeat(seen.T * trust[:, None], rank, axis=1).astype(np.float32),
        PENALTY,
    )
    every = design.times(solution) + intercepts
    scores = np.zeros((len(features), rank))
    for row, part in enumerate(parts):
        scores[folds == part] = every[folds == part, row * rank : (row + 1) * rank]
    curves, chances = _calibrate(scores, good, folds)
    final, shift = solution[:, -rank:], intercepts[-rank:]
    lexical_weights = final[len(places) :].T * np.float32(LEXICAL_SCALE)
    fitted = ModelAdequacies(
        tuple(qualities), places, final[: len(places)], idf, np.vstack([lexical, lexical_weights]), shift, curves
    )
    return fitted, chances


def _directions(good: Array) -> tuple[Array, Array]:
    """The coordinates of each prompt, shape (n, r), and its weight, shape (n,). `good`: shape (n, m).

    The r coordinates are the directions in which the outcomes of the models differ most, scaled to variance 1. The
    weight of a prompt is the share of models that were measured on it.
    """
    known = ~np.isnan(good)
    mean = np.where(known, good, 0).sum(0) / np.maximum(known.sum(0), 1)
    filled = np.where(known, good - mean, 0.0)
    rank = min(RANK, good.shape[1])
    for _ in range(5):  # missing outcomes are estimated from the others (iterated SVD, Mazumder et al. 2010)
        left, size, right = np.linalg.svd(filled, full_matrices=False)
        kept = size[:rank] ** 2 / np.maximum(size[:rank] + size.mean(), 1e-9)
        rough = (left[:, :rank] * kept) @ right[:rank]
        filled = np.where(known, good - mean, rough)
    scores = filled @ right[:rank].T
    return scores / np.maximum(scores.std(0), 1e-9), known.mean(1)


def _design(features: Sequence[Features]) -> tuple[Design, NDArray[np.int64], Floats, Floats]:
    """The design matrix of the regression, and three things that are needed to compute it for new prompts: the n-gram
    bins of its columns, their inverse document frequencies, and the means and standard deviations of the lexical
    counts."""
    bins = np.concatenate([each.bins for each in features])
    rows = np.repeat(np.arange(len(features)), [len(each.bins) for each in features])
    seen = np.bincount(bins, minlength=BINS)
    kept = seen >= min(2, len(features))
    places = np.flatnonzero(kept)
    number = np.cumsum(kept) - 1
    idf = (1 + np.log((len(features) + 1) / (seen[places] + 1))).astype(np.float16).astype(np.float32)
    inside = kept[bins]
    rows, columns = rows[inside], number[bins[inside]]
    values = np.concatenate([each.counts for each in features])[inside] * idf[columns]
    block = rows * 2 + (places[columns] >= 1 << WORD_BITS)
    values = values / np.sqrt(np.bincount(block, values**2, minlength=2 * len(features)))[block]
    lexical = np.array([each.lexical for each in features])
    mean, deviation = lexical.mean(0), lexical.std(0) + 1e-6
    dense = (((lexical - mean) / deviation).clip(-CLIP, CLIP) * LEXICAL_SCALE).astype(np.float32)
    design = Design.of(rows, columns, values.astype(np.float32), len(places), dense)
    return design, places, idf, np.vstack([mean, deviation]).astype(np.float32)


def _calibrate(scores: Array, good: Array, folds: NDArray[np.int64]) -> tuple[Array, Array]:
    """Fit the calibration curves of m models. Returns the curves, and probabilities of shape (n, m). The probabilities
    of a prompt come from a fit without the prompt's fold.

    `scores`: shape (n, r), also from fits without the prompt's fold. `good`: shape (n, m); NaN means not measured.
    `folds`: shape (n,).
    """
    flat = np.zeros(1 + 2 * scores.shape[1])
    curves = np.zeros((good.shape[1], len(flat)))
    chances = np.zeros_like(good)
    for model in range(good.shape[1]):
        known = ~np.isnan(good[:, model])
        curves[model] = _curve(scores[known], good[known, model], flat)
        for part in np.unique(folds):
            rest = known & (folds != part)
            curve = _curve(scores[rest], good[rest, model], flat)
            chances[folds == part, model] = _chance(curve[None], scores[folds == part])[:, 0]
    return curves, chances


def _curve(scores: Array, good: NDArray[np.generic], before: Array) -> Array:
    """A calibration curve, fitted by logistic regression and pulled towards the curve `before`. `scores`: shape (n, r);
    `good`: shape (n,)."""
    columns, outcomes = _columns(scores), good.astype(np.float64)
    strength = np.full(len(before), SHRINKAGE)
    strength[0] = LEVEL_SHRINKAGE
    strength[1 + scores.shape[1] :] = BEND_SHRINKAGE
    curve = before.copy()
    for _ in range(50):
        chance = 1 / (1 + np.exp(-(columns @ curve).clip(-30, 30)))
        gradient = columns.T @ (outcomes - chance) - strength * (curve - before)
        curvature = columns.T @ (columns * (chance * (1 - chance))[:, None]) + np.diag(strength)
        move = np.linalg.solve(curvature, gradient).clip(-2, 2)
        curve = curve + move
        if np.abs(move).max() < 1e-6:
            break
    return curve


def _columns(scores: Array) -> Array:
    """The columns of the regression: 1, the scores, and the squares of the scores. Because of the squares, a model can
    be best at medium scores."""
    return np.column_stack([np.ones(len(scores)), scores, scores**2])


def _chance(curves: Array, scores: Array) -> Array:
    """The probabilities of good answers, shape (n prompts, m models). `curves`: the calibration curves of the
    models."""
    chances: Array = 1 / (1 + np.exp(-(_columns(scores) @ curves.T).clip(-30, 30)))
    return chances
