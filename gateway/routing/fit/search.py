"""Searches for strategies by backward induction over the called models and their agreement, for many prices of money at
once. A price of money is the quality that one US dollar must gain.

A state is a set of called models and the way in which their answers agree. States are fitted from the largest sets to
the empty one. For each state, two things are fitted: the model whose answer is served, and the gain of calling each
further model. The gain is the quality of the best continuation, minus the quality of stopping, minus the price of money
times the cost. All orders of calls are covered, because a state does not depend on the order.

Within a state, the gains are regressed on the prompt's features, so that they may depend on the prompt (fitted value
iteration, Gordon 1995). The value of a continuation comes from decisions that were fitted without the prompt
(cross-fitting); otherwise the value would be too high.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gateway.routing.fit.agreement import fit_agreement
from gateway.routing.fit.outcomes import Outcomes

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
Asked = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """The outcomes of n prompts and m models from which the search fits."""

    labels: Whole
    """Labels of answers, n × m. Answers with equal labels agree; −1 means no vote."""
    quality: Array
    """Quality, n × m; 0 if unknown."""
    usd: Array
    able: NDArray[np.bool_]
    """Whether the model can be called, n × m."""
    features: Array
    """Features, n × d. The first column is 1."""

    @classmethod
    def of(cls, outcomes: Outcomes, features: Array) -> Evidence:
        known = ~np.isnan(outcomes.quality)
        return cls(outcomes.labels, np.where(known, outcomes.quality, 0.0), outcomes.usd, known, features)

    def part(self, rows: Whole | NDArray[np.bool_]) -> Evidence:
        return Evidence(self.labels[rows], self.quality[rows], self.usd[rows], self.able[rows], self.features[rows])

    def only(self, features: int) -> Evidence:
        """The same evidence with only the first `features` columns of its features."""
        return Evidence(self.labels, self.quality, self.usd, self.able, self.features[:, :features])

    def __len__(self) -> int:
        return len(self.labels)


class Settings(NamedTuple):
    """Settings of the search: its depth, and its regularisation of states with few rows."""

    depth: int = 4
    """Maximum number of models that are called for one prompt."""
    realised: float = 0.5
    """Weight, 0..1, of the actual outcomes in the gain of a call. The rest of the weight is for the estimated outcomes,
    which vary less."""
    agreement: float = 20.0
    """Weight of the general estimate of an answer's quality (see `Agreement`) in each state: it has the weight of this
    number of measured prompts."""
    reluctance: float = 5.0
    """Number of imaginary prompts that are added to each state in which a further model may be called. In these
    prompts, calling the further model gains nothing."""
    slopes: float = 50.0
    """Ridge penalty on the features of the prompt."""
    folds: int = 5
    seed: int = 0


SUPPORT = 5
"""Minimum number of prompts in a state. The decisions of states with fewer prompts are not used."""


class Level(NamedTuple):
    """The fitted decisions for one set of called models, for c states and L prices of money. A price of money is the
    quality that one US dollar must gain. Prompts have d features."""

    codes: Whole
    """The numbers of the c states, ascending. `encode` makes these numbers."""
    serve: Whole
    """For each of the c states: the model whose answer is served, as an index in the set of called models."""
    worth: dict[int, Array]
    """Further model → the weights of the prompt's features in the expected gain of calling that model. Shape c × d × L.
    """
    rows: Whole
    """For each of the c states: the number of prompts in it."""


Learned = dict[Asked, Level]


class _Value(NamedTuple):
    """The values of the best further calls from one state. Arrays have shape (n prompts, L prices of money).
    `realised`, `estimated`: quality of the answer that is served. `usd`: US dollars of the further calls."""

    realised: NDArray[np.floating]
    estimated: NDArray[np.floating]
    usd: NDArray[np.floating]


def prices(usd: Array, able: NDArray[np.bool_], count: int = 20) -> Array:
    """`count` prices of money (quality per US dollar), ascending, shape (count,). At the lowest price, cost hardly
    matters. At the highest price, only the cheapest model is called. `usd`: cost of each model for each prompt.
    `able`: which of these calls are possible."""
    mean = np.where(able, usd, 0).sum(0) / able.sum(0)
    return np.asarray(np.geomspace(0.01 / mean.max(), 0.1 / max(mean.min(), mean.max() * 1e-6), count))


def affordable(models: int, prompts: int, votes: bool) -> int:
    """The largest search depth (models per prompt) that does not take too long; 1 if there are no votes."""
    if not votes:
        return 1
    for depth in (4, 3, 2):
        work = sum(math.comb(models, size) * (models - size) for size in range(depth)) * prompts
        if work <= 6e6:
            return min(depth, models)
    return 1


def encode(labels: Whole, asked: Asked) -> Whole:
    """Encode for each prompt which answers of the models `asked` agree, as one number per prompt."""
    count = len(asked)
    canonical = np.zeros((len(labels), count), dtype=np.int64)
    code = np.zeros(len(labels), dtype=np.int64)
    fresh = np.zeros(len(labels), dtype=np.int64)
    for place, model in enumerate(asked):
        vote = labels[:, model]
        label = fresh + 1
        for before in range(place):
            label = np.where(vote == labels[:, asked[before]], canonical[:, before], label)
        label = np.where(vote < 0, 0, label)
        fresh = np.maximum(fresh, label)
        canonical[:, place] = label
        code = code * (count + 1) + label
    return code


def decode(code: int, count: int) -> tuple[int, ...]:
    """Decode a number that `encode` made. Returns one label for each of `count` models. Models with equal labels gave
    answers that agree."""
    labels: list[int] = []
    for _ in range(count):
        code, label = divmod(code, count + 1)
        labels.append(label)
    return tuple(reversed(labels))


def learn(evidence: Evidence, price: Array, settings: Settings) -> Learned:
    """Fit the decisions of all states for each price of money in `price`. A price of money is the quality that one US
    dollar must gain."""
    models = evidence.quality.shape[1]
    folds = np.random.default_rng(settings.seed).permutation(len(evidence)) % settings.folds
    agreement = fit_agreement(evidence.labels, evidence.quality, evidence.able, seed=settings.seed)
    learned: Learned = {}
    above: dict[Asked, _Value] = {}
    for size in range(min(settings.depth, models), -1, -1):
        here: dict[Asked, _Value] = {}
        for asked in itertools.combinations(range(models), size):
            belief = agreement.of(evidence.labels, asked) if asked else None
            here[asked], learned[asked] = _state(evidence, asked, folds, above, price, settings, belief)
        above = here
    return learned


class _Cells:
    """Sums values over the rows of each state: over all rows, and over the rows outside of each fold."""

    def __init__(self, codes: Whole, folds: Whole, count: int) -> None:
        self.codes, self.cell = np.unique(codes, return_inverse=True)
        self._shape = (len(self.codes), count)
        key = self.cell * count + folds
        self._order = np.argsort(key, kind="stable")
        ordered = key[self._order]
        self._starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        self._keys = ordered[self._starts]

    def sums(self, values: Array) -> Array:
        """Sums of `values`, shape (c states, folds + 1, …). Index k of the second axis: sum over all rows outside of
        fold k. Last index: sum over all rows."""
        found = np.zeros((self._shape[0] * self._shape[1], *values.shape[1:]))
        found[self._keys] = np.add.reduceat(values[self._order], self._starts, axis=0)
        inside = found.reshape(*self._shape, *values.shape[1:])
        total = inside.sum(1, keepdims=True)
        return np.concatenate([total - inside, total], axis=1)


def _state(
    evidence: Evidence,
    asked: Asked,
    folds: Whole,
    above: dict[Asked, _Value],
    price: Array,
    settings: Settings,
    belief: Array | None,
) -> tuple[_Value, Level]:
    cells = _Cells(encode(evidence.labels, asked), folds, settings.folds)
    count = cells.sums(np.ones(len(evidence)))
    rows = np.arange(len(evidence))
    serve = np.zeros((len(cells.codes), settings.folds + 1), dtype=np.int64)
    realised, estimated = np.zeros(len(evidence)), np.zeros(len(evidence))
    if belief is not None:
        prior = cells.sums(belief)[:, -1:] / count[:, -1:, None]
        quality = evidence.quality[:, asked]
        level = (cells.sums(quality) + settings.agreement * prior) / (count[..., None] + settings.agreement)
        serve = level.argmax(2)
        realised = quality[rows, serve[cells.cell, folds]]
        estimated = level.max(2)[cells.cell, folds]
    wide = [np.repeat(each[:, None], len(price), 1) for each in (realised, estimated, np.zeros(len(rows)))]
    value = _Value(wide[0], wide[1], wide[2])
    worth: dict[int, Array] = {}
    if above:
        value, worth = _ask(evidence, asked, folds, above, price, settings, cells, value)
    held = [each.astype(np.float32) for each in value]
    return _Value(held[0], held[1], held[2]), Level(cells.codes, serve[:, -1], worth, count[:, -1].astype(np.int64))


def _ask(
    evidence: Evidence,
    asked: Asked,
    folds: Whole,
    above: dict[Asked, _Value],
    price: Array,
    settings: Settings,
    cells: _Cells,
    stop: _Value,
) -> tuple[_Value, dict[int, Array]]:
    """The best continuation from the state in which the models `asked` were called. Returns its value, and for each
    further model the weights of the prompt's features in the gain of calling this model.

    A further call is only made if it is worth its cost. `above`: the values of the states with one more called model.
    `stop`: the value without a further call.
    """
    features = evidence.features
    width = features.shape[1]
    gram = cells.sums((features[:, :, None] * features[:, None, :]).reshape(len(features), -1))
    gram = gram.reshape(*gram.shape[:2], width, width) + np.diag([1e-6, *[settings.slopes] * (width - 1)])
    if asked:
        gram[:, :, 0, 0] += settings.reluctance
    inverse = np.linalg.inv(gram)
    best = np.full(stop.usd.shape, 0.0 if asked else -np.inf)
    chosen = np.full(stop.usd.shape, -1)
    worth: dict[int, Array] = {}
    further = [model for model in range(evidence.quality.shape[1]) if model not in asked]
    for model in further:
        then = above[tuple(sorted((*asked, model)))]
        gain = settings.realised * (then.realised - stop.realised)
        gain += (1 - settings.realised) * (then.estimated - stop.estimated)
        gain -= price * (then.usd + evidence.usd[:, [model]])
        gain[~evidence.able[:, model]] = 0.0
        pull = cells.sums((features[:, :, None] * gain[:, None, :]).reshape(len(features), -1))
        pull = pull.reshape(*pull.shape[:2], width, len(price))
        if asked:
            pull[:, :, 0] -= settings.reluctance * price * evidence.usd[:, model].mean()
        slopes = inverse @ pull
        worth[model] = slopes[:, -1]
        guess = np.einsum("nd,ndl->nl", features, slopes[cells.cell, folds])
        guess[~evidence.able[:, model]] = -np.inf
        better = guess > best
        best, chosen = np.where(better, guess, best), np.where(better, model, chosen)
    value = stop
    for model in further:
        take = chosen == model
        if take.any():
            then = above[tuple(sorted((*asked, model)))]
            value = _Value(
                np.where(take, then.realised, value.realised),
                np.where(take, then.estimated, value.estimated),
                np.where(take, then.usd + evidence.usd[:, [model]], value.usd),
            )
    return value, worth


def walk(evidence: Evidence, learned: Learned, place: int) -> Iterator[tuple[Asked, Level, int, list[int]]]:
    """Yield each state that prompts reach at one price of money, as (called models, their `Level`, index of the state,
    models that are called next for some prompt). A price of money is the quality that one US dollar must gain. `place`:
    its index."""
    codes: dict[Asked, Whole] = {(): encode(evidence.labels, ())}
    front: list[tuple[Asked, int]] = [((), 0)]
    seen = set(front)
    while front:
        asked, code = front.pop()
        level = learned[asked]
        state = int(np.searchsorted(level.codes, code))
        if level.rows[state] < SUPPORT:
            continue
        here = np.flatnonzero(codes[asked] == code)
        chosen = choose(evidence.part(here), level, state, place, stops=bool(asked))
        models = sorted(set(chosen.tolist()) - {-1})
        yield asked, level, state, models
        for model in models:
            then = tuple(sorted((*asked, model)))
            if then not in codes:
                codes[then] = encode(evidence.labels, then)
            fresh = {(then, code) for code in np.unique(codes[then][here[chosen == model]]).tolist()} - seen
            seen |= fresh
            front += sorted(fresh)


def choose(evidence: Evidence, level: Level, state: int, place: int, *, stops: bool) -> Whole:
    """The next model for each of n prompts in one state; −1: no further call. `place`: index of the price of money
    (the quality that one US dollar must gain). `stops`: whether the cascade may end in this state."""
    best = np.full(len(evidence), 0.0 if stops else -np.inf)
    chosen = np.full(len(evidence), -1)
    for model, worth in level.worth.items():
        guess = evidence.features @ worth[state, :, place]
        better = (guess > best) & evidence.able[:, model]
        best, chosen = np.where(better, guess, best), np.where(better, model, chosen)
    return chosen


def play(evidence: Evidence, learned: Learned, place: int) -> tuple[Array, Array]:
    """Apply the decisions for one price of money to each of n prompts. Returns quality and US dollars. `place`: index
    of the price of money (the quality that one US dollar must gain)."""
    quality, usd = np.zeros(len(evidence)), np.zeros(len(evidence))
    front: dict[Asked, Whole] = {(): np.arange(len(evidence))}
    while front:
        onward: dict[Asked, list[Whole]] = {}
        for asked, rows in front.items():
            level = learned[asked]
            codes = encode(evidence.labels[rows], asked)
            cell, known = _found(level, codes)
            if not known.all():
                again, there = _found(level, _voted(evidence.labels[rows], asked))
                cell, known = np.where(known, cell, again), known | there
            if asked:
                served = np.array(asked)[np.where(known, level.serve[cell], _plural(evidence, rows, asked))]
                quality[rows] = evidence.quality[rows, served]
            for state in np.unique(cell[known]).tolist():
                here = rows[(cell == state) & known]
                chosen = choose(evidence.part(here), level, state, place, stops=bool(asked))
                for model in set(chosen.tolist()) - {-1}:
                    sent = here[chosen == model]
                    usd[sent] += evidence.usd[sent, model]
                    onward.setdefault(tuple(sorted((*asked, model))), []).append(sent)
        front = {asked: np.concatenate(parts) for asked, parts in onward.items()}
    return quality, usd


def _found(level: Level, codes: Whole) -> tuple[Whole, NDArray[np.bool_]]:
    cell = np.minimum(np.searchsorted(level.codes, codes), len(level.codes) - 1)
    return cell, (level.codes[cell] == codes) & (level.rows[cell] >= SUPPORT)


def _voted(labels: Whole, asked: Asked) -> Whole:
    """Encode which answers of the models `asked` agree, as one number per prompt. An answer without a vote agrees with
    no other answer."""
    own = -2 - np.arange(labels.shape[1])
    return encode(np.where(labels < 0, labels.max() + 1 - own, labels), asked)


def _plural(evidence: Evidence, rows: Whole, asked: Asked) -> Whole:
    """The index in `asked` of the answer with which most other answers agree. If several answers have the
    highest number, the answer of the model with the best mean quality is taken."""
    votes = evidence.labels[rows][:, asked]
    agree = ((votes[:, :, None] == votes[:, None, :]) & (votes >= 0)[:, :, None]).sum(2)
    level = evidence.quality[:, asked].mean(0)
    return np.asarray((agree + level / 2).argmax(1))
