"""Fits a scorer to a part of a corpus. The scorer is a ridge regression of the strong model's gain in quality over the
weak model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gateway.routing.difficulty.features import BINS, WORD_BITS, Floats
from gateway.routing.difficulty.ridge import Array, Design, solve
from gateway.routing.difficulty.scorer import CLIP, Scorer
from gateway.routing.difficulty.weights_file import IDF_STEP
from gateway.routing.fit.corpus import Corpus, spread

PENALTY = 60.0
"""Ridge penalty of the shared scorer, chosen by cross-validation. Penalties from 30 to 100 give results that do not
differ significantly."""
LEXICAL_SCALE = 0.05
"""Scale of a standardised lexical count relative to the n-gram vectors, which have unit length."""
EXPERT_PENALTY = 15.0
EXPERT_SCALE = 0.1
GATE_PENALTY = 10.0
REFINE_PENALTY = 8.0
PRIOR_SCALE = 0.3
"""When an earlier classifier is refined, its standardised score is one of the features. This number is the scale of
that feature."""
BALANCE = 0.25
"""The weight of a prompt is the number of prompts in its set, to the power of −`BALANCE`. So a prompt of a small set
has a slightly higher weight."""
LEVEL = 0.5
"""Share of the set's mean gain that is subtracted from the gain of each prompt in the set."""
LEAST = 100
"""Minimum number of prompts in a set for which an expert is fitted."""
MOST_EXPERTS = 8

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Model:
    """A fitted scorer with its scores for all prompts of the corpus, including prompts that were not used for
    training."""

    scorer: Scorer
    scores: Array


def fit_model(corpus: Corpus, chosen: Mask) -> Model:
    """Fit a shared scorer to the `chosen` prompts, and an expert to each of the larger sets. `chosen`: shape (n,)."""
    idf, design = _design(corpus, chosen)
    target, weights = gains(corpus, chosen)
    shared, shift = solve(design, target[:, None], weights[:, None], PENALTY)
    tall = design.dense.shape[1]
    finer = replace(design, dense=design.dense * np.float32(EXPERT_SCALE / LEXICAL_SCALE))
    sets = _own(corpus, chosen)
    experts = np.zeros((BINS + tall, len(sets)), dtype=np.float32)
    shifts = np.zeros(len(sets), dtype=np.float32)
    for place, number in enumerate(sets):
        members = chosen & (corpus.sets == number)
        gain = (corpus.strong - corpus.weak)[members]
        around = (gain - gain.mean()).astype(np.float32)[:, None]
        found, shifts[place : place + 1] = solve(finer.part(members), around, np.ones_like(around), EXPERT_PENALTY)
        experts[:, place : place + 1] = found
    gates, gate_shifts = _gates(corpus, chosen, sets, finer.dense)
    mean, deviation = spread(corpus, chosen)
    open_to = (finer.dense @ gates.T + gate_shifts).clip(0, 1)
    scores = (design.times(shared) + shift)[:, 0] + (open_to * (finer.times(experts) + shifts)).sum(1)
    scorer = Scorer(
        np.column_stack([shared, experts])[:BINS],
        idf,
        mean.astype(np.float32),
        deviation.astype(np.float32),
        np.column_stack([shared[BINS:] * LEXICAL_SCALE, experts[BINS:] * EXPERT_SCALE]).T.astype(np.float32),
        np.concatenate([shift, shifts]).astype(np.float32),
        gates * np.float32(EXPERT_SCALE),
        gate_shifts,
    )
    return Model(scorer, scores.astype(np.float64))


def refine(prior: Scorer, corpus: Corpus, chosen: Mask) -> Model:
    """Refine the scorer `prior` of an earlier classifier with the outcomes of the `chosen` prompts. If there are few
    outcomes, the scorer changes little. `chosen`: shape (n,)."""
    values = _values(corpus, prior.idf.astype(np.float64))
    before = np.array([prior.score(each) for each in corpus.features], dtype=np.float32)
    middle, width = float(before[chosen].mean()), float(before[chosen].std()) or 1.0
    dense = prior.standard(corpus.lexical.astype(np.float32)).clip(-CLIP, CLIP) * np.float32(EXPERT_SCALE)
    design = Design.of(
        corpus.rows,
        corpus.bins,
        values,
        BINS,
        np.column_stack([dense, (before - middle) / width * PRIOR_SCALE]).astype(np.float32),
    )
    target, weights = gains(corpus, chosen)
    found, shift = solve(design, target[:, None], weights[:, None], REFINE_PENALTY)
    trust = found[-1, 0] * np.float32(PRIOR_SCALE / width)
    weights_after, lexical, intercepts = (
        trust * each for each in (prior.weights, prior.lexical_weights, prior.intercepts)
    )
    weights_after[:, 0] += found[:BINS, 0]
    lexical[0] += found[BINS:-1, 0] * np.float32(EXPERT_SCALE)
    intercepts[0] += shift[0] - trust * np.float32(middle)
    scorer = replace(prior, weights=weights_after, lexical_weights=lexical, intercepts=intercepts)
    return Model(scorer, (design.times(found) + shift)[:, 0].astype(np.float64))


def gains(corpus: Corpus, chosen: Mask) -> tuple[Floats, Floats]:
    """The adjusted gain and the weight of each prompt, both of shape (n,). The gain is the strong model's quality minus
    the weak model's; a part of the mean gain of the prompt's set is subtracted. Prompts that are not `chosen` have
    weight 0."""
    gain, weights, target = corpus.strong - corpus.weak, np.zeros(len(corpus)), np.zeros(len(corpus))
    for number in range(len(corpus.names)):
        members = chosen & (corpus.sets == number)
        if members.any():
            target[members] = gain[members] - LEVEL * gain[members].mean()
            weights[members] = float(members.sum()) ** -BALANCE
    return target.astype(np.float32), (weights * (chosen.sum() / weights.sum())).astype(np.float32)


def _own(corpus: Corpus, chosen: Mask) -> list[int]:
    """The indexes of the sets that are large enough for an expert of their own."""
    sizes = np.bincount(corpus.sets[chosen], minlength=len(corpus.names))
    return sorted(number for number in np.argsort(-sizes)[:MOST_EXPERTS].tolist() if sizes[number] >= LEAST)


def _design(corpus: Corpus, chosen: Mask) -> tuple[Floats, Design]:
    """The inverse document frequencies of the n-gram bins, and the design matrix of all prompts. The frequencies are
    rounded as in the weights file."""
    seen = np.bincount(corpus.bins[chosen[corpus.rows]], minlength=BINS)
    idf = 1 + np.log((int(chosen.sum()) + 1) / (seen + 1))
    idf = 1 + np.clip(np.round((idf - 1) * IDF_STEP), 0, 255) / IDF_STEP
    mean, deviation = spread(corpus, chosen)
    dense = np.clip((corpus.lexical - mean) / deviation, -CLIP, CLIP) * LEXICAL_SCALE
    design = Design.of(corpus.rows, corpus.bins, _values(corpus, idf), BINS, dense.astype(np.float32))
    return idf.astype(np.float32), design


def _values(corpus: Corpus, idf: Array) -> Floats:
    """The tf-idf values of the n-grams. In each prompt, the values of word bins form a vector of length 1, and so do
    the values of the other bins."""
    values = corpus.counts * idf[corpus.bins]
    block = corpus.rows * 2 + (corpus.bins >= 1 << WORD_BITS)
    length = np.sqrt(np.bincount(block, values**2, minlength=2 * len(corpus)))
    return (values / length[block]).astype(np.float32)


def _gates(corpus: Corpus, chosen: Mask, sets: list[int], dense: Floats) -> tuple[Floats, Floats]:
    """Fit the gates. Returns weights, shape (sets, features), and intercepts, shape (sets,). Each gate is a linear
    regression of whether a prompt is in the set. The total weight of a set is √size."""
    sizes = np.bincount(corpus.sets[chosen], minlength=len(corpus.names))
    rows, kinds = dense[chosen].astype(np.float64), corpus.sets[chosen]
    weights = 1 / np.sqrt(sizes[kinds])
    weights *= len(rows) / weights.sum()
    belongs = (kinds[:, None] == np.array(sets, dtype=np.int64)).astype(np.float64)
    middle, level = weights @ rows / weights.sum(), weights @ belongs / weights.sum()
    rows -= middle
    scaled = rows * weights[:, None]
    gates = np.linalg.solve(scaled.T @ rows + GATE_PENALTY * np.eye(rows.shape[1]), scaled.T @ (belongs - level)).T
    return gates.astype(np.float32), (level - gates @ middle).astype(np.float32)
