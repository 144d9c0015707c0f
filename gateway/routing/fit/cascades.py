"""Finds plain cascades. A plain cascade calls models in order, cheapest first, until enough answers agree.

Only the models and the number of agreeing answers are fitted. So the expected quality is right even with few outcomes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gateway.routing.fit.search import Evidence
from gateway.routing.fit.shrink import Rows, Whole, real_share, shrunken
from gateway.routing.strategy.strategy import Pattern, State, ordered

Array = NDArray[np.float64]

LONGEST = 6
"""Maximum number of models in one cascade."""
BEAM = 800
"""Maximum number of sets of one size that the beam search keeps and extends by one more model."""
ORDERED = 4
"""Maximum size of the sets whose models are tried in all orders. The order affects the cost, and it affects which two
answers agree first."""
CELLS = 20_000_000
"""Maximum of a product: the number of prompts times the number of orders that are tried. The orders of the best sets
are tried first."""


class Cascade(NamedTuple):
    """A plain cascade. `members`: indexes of the models in the order of calls. The cascade ends when `agree` answers
    agree."""

    members: tuple[int, ...]
    agree: int


class Tried(NamedTuple):
    """The results of k cascades on n prompts."""

    cascades: list[Cascade]
    quality: Rows
    """Quality of each cascade on each prompt, k × n."""
    usd: Rows
    sets: Whole
    """One number for each of the k cascades. Cascades have equal numbers if they have the same set of models and the
    same `agree`, so that they differ only in the order of the models."""
    real: float
    """Share of the variance between orders of a set that is real and not random (see `shrink.py`)."""

    def level(self, weights: Array) -> Array:
        """The mean quality of each cascade under several weightings of the prompts, shape (k cascades, f weightings).
        `weights`: shape (n prompts, f); each column adds up to 1."""
        return shrunken(self.quality @ weights.astype(np.float32), self.sets, self.real)

    def part(self, chosen: NDArray[np.bool_]) -> Tried:
        """The results of only the cascades selected by the mask `chosen`."""
        kept = [self.cascades[place] for place in np.flatnonzero(chosen).tolist()]
        return Tried(kept, self.quality[chosen], self.usd[chosen], self.sets[chosen], self.real)


def try_all(evidence: Evidence, price: Array, *, orders: bool = True) -> Tried:
    """Evaluate cascades of up to `LONGEST` models, which a beam search finds. `price`: prices of money (the quality
    that one US dollar must gain), shape (r,). `orders`: whether to try several orders of up to `ORDERED` models."""
    order = np.argsort(np.where(evidence.able, evidence.usd, 0).sum(0) / evidence.able.sum(0)).tolist()
    level = np.where(evidence.able, evidence.quality, 0).sum(0) / evidence.able.sum(0)
    parts: list[tuple[list[Cascade], Rows, Rows]] = []
    front: list[tuple[int, ...]] = [(model,) for model in order]
    for size in range(2, min(LONGEST, len(order)) + 1):
        wider = {
            tuple(sorted((*each, model), key=order.index)) for each in front for model in order if model not in each
        }
        tried = _run_all(
            evidence,
            [Cascade(members, agree) for members in sorted(wider) for agree in ((2,) if size < 4 else (2, 3))],
            level,
        )
        parts.append(tried)
        front = _best(*tried, price)
        if orders and 2 < size <= ORDERED:
            limit = CELLS // (len(evidence) * (ORDERED - 2))
            others = (
                Cascade(other, 2)
                for each in front
                for other in itertools.permutations(each)
                if other != each
                and order.index(other[0]) < order.index(other[1])  # the first two are always both called
            )
            parts.append(_run_all(evidence, list(itertools.islice(others, limit)), level))
    cascades = [each for part, _, _ in parts for each in part]
    quality, usd = (np.concatenate([part[place] for part in parts]) for place in (1, 2))
    known: dict[tuple[tuple[int, ...], int], int] = {}
    sets = np.array([known.setdefault((tuple(sorted(each.members)), each.agree), len(known)) for each in cascades])
    return Tried(cascades, quality, usd, sets, real_share(quality, sets))


def _run_all(evidence: Evidence, cascades: list[Cascade], level: Array) -> tuple[list[Cascade], Rows, Rows]:
    quality = np.zeros((len(cascades), len(evidence)), dtype=np.float32)
    usd = np.zeros_like(quality)
    for place, each in enumerate(cascades):
        quality[place], usd[place] = run(evidence, each.members, each.agree, level)
    return cascades, quality, usd


def _best(cascades: Sequence[Cascade], quality: Rows, usd: Rows, price: Array) -> list[tuple[int, ...]]:
    """Select the sets of models with the best cascades, best first, at most `BEAM` sets.

    The value of a cascade is its mean quality minus its mean cost times a price of money. Cascades are ranked for each
    price in `price`, shape (r,). A cascade counts with the best of its ranks.
    """
    level, cost = quality.mean(1, dtype=np.float64), usd.mean(1, dtype=np.float64)
    ranks = (-(level[:, None] - price * cost[:, None])).argsort(0).argsort(0).min(1)
    kept: dict[tuple[int, ...], None] = {}
    for place in ranks.argsort(kind="stable").tolist():
        kept[cascades[place].members] = None
        if len(kept) == BEAM:
            break
    return list(kept)


def run(evidence: Evidence, members: tuple[int, ...], agree: int, level: Array) -> tuple[Array, Array]:
    """Run one cascade on each prompt. Returns quality and US dollars, both of shape (n,). Models that cannot be called
    are skipped. If no answer has most votes, the model with the highest `level`, shape (m,), answers."""
    rows = np.arange(len(evidence))
    quality, usd = np.zeros(len(evidence)), np.zeros(len(evidence))
    open_ = np.ones(len(evidence), dtype=bool)
    for count in range(1, len(members) + 1):
        model = members[count - 1]
        usd += np.where(open_ & evidence.able[:, model], evidence.usd[:, model], 0.0)
        if count < agree and count < len(members):
            continue
        asked = list(members[:count])
        votes, able = evidence.labels[:, asked], evidence.able[:, asked]
        size = ((votes[:, :, None] == votes[:, None, :]) & (votes[:, :, None] >= 0)).sum(2)
        place = np.where(able, size + level[asked] / 2, -1.0).argmax(1)
        settled = open_ & ((size.max(1) >= agree) | (count == len(members)))
        quality[settled] = evidence.quality[:, asked][rows, place][settled]
        open_ &= ~settled
        if not open_.any():
            break
    return quality, usd


def states(cascade: Cascade, models: Sequence[str]) -> dict[Pattern, State]:
    """The states of a cascade, in the form that strategies use. States in which the cascade ends are left out. In such
    a state, the most frequent answer is served."""
    found: dict[Pattern, State] = {}
    for count in range(len(cascade.members)):
        onward = models[cascade.members[count]]
        names = [models[member] for member in cascade.members[:count]]
        for labels in _undecided(count, cascade.agree):
            found[ordered(names, [label + 1 for label in labels])] = State("", {onward: (1.0,)})
    return found


def _undecided(count: int, agree: int) -> Iterator[tuple[int, ...]]:
    """Yield all combinations of labels for `count` answers in which fewer than `agree` answers agree."""
    front: list[tuple[int, ...]] = [()]
    for _ in range(count):
        front = [
            (*labels, label)
            for labels in front
            for label in range(max(labels, default=-1) + 2)
            if labels.count(label) + 1 < agree
        ]
    yield from front
