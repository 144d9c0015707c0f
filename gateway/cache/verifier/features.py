"""Computes some fifty features of a pair of questions for the learned part of the verifier."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gateway.cache.verifier.differences import SIGNS, Comparer, Comparison
from gateway.cache.verifier.lexicon import Lexicon, Words
from gateway.cache.verifier.politeness import LONGEST
from gateway.cache.verifier.text import Reading, Token
from gateway.cache.verifier.vocabulary import COLUMNS

NAMES = (
    "cosine",
    "cosine_high",
    "content_overlap",
    "weight_overlap",
    "least_unmatched",
    "most_unmatched",
    "least_unmatched_weight",
    "most_unmatched_weight",
    "rarest_unmatched",
    "one_for_one",
    "added_only",
    "word_shape",
    "nearest_words",
    "likeness",
    "sense_likeness",
    "least_lonely",
    "most_lonely",
    "heads_alike",
    "heads_missing",
    "exchanged",
    "exchanged_lonely",
    "inner_exchanged",
    "length_ratio",
    "length",
    "common_content",
    "gaps",
    "alone",
    "exchanged_alone",
    "qualified",
    "aside",
    "spots",
    "moved",
    "modal_differs",
    "particle_differs",
    "first_word_differs",
    *SIGNS,
    "english",
    "english_cosine",
    "alone_cosine",
)

_MOST_COMMON, _RAREST = 7.5, 2.5
"""Zipf frequencies between which a word gains weight."""
_MOST_WORDS = 12
"""Unmatched words of a side that are laid against the other's."""


class Featurer:
    """Comparison → feature row. Pure; tens of microseconds."""

    def __init__(self, words: Words, comparer: Comparer) -> None:
        self._words = words
        self._comparer = comparer
        self._weight = lru_cache(maxsize=16384)(self._weigh)

    def row(self, stored: Reading, asked: Reading, comparison: Comparison, cosine: float) -> list[float]:
        """One number per name in `NAMES`."""
        lexicon = self._comparer.lexicon(stored, asked)
        language = stored.language or asked.language or "en"
        left = [token for gap in comparison.gaps for token in gap.stored]
        right = [token for gap in comparison.gaps for token in gap.asked]
        stems = [
            {_stem(token.form): token.form for token in side if self._content(token, lexicon)} for side in (left, right)
        ]
        moved = stems[0].keys() & stems[1].keys()
        only = [[form for stem, form in sorted(side.items()) if stem not in moved] for side in stems]
        weights = [[self._weight(form, language) for form in side] for side in only]
        common = comparison.matched + len(moved)
        contents = [[token.form for token in each.tokens if self._content(token, lexicon)] for each in (stored, asked)]
        common_weight = self._common_weight(contents, language)
        totals = [sum(side) for side in weights]
        counts = [len(side) for side in only]
        english = float(language == "en")
        alone = float(comparison.alone)
        nearest, likeness = self._nearness(only[0][:_MOST_WORDS], only[1][:_MOST_WORDS])
        unpaired = self._unpaired(only, weights)
        return [
            cosine,
            max(0.0, cosine - 0.9),
            common / max(1, common + max(counts)),
            common_weight / max(1e-6, common_weight + max(totals)),
            min(counts),
            max(counts),
            min(totals),
            max(totals),
            max([weight for side in weights for weight in side], default=0.0),
            float(counts == [1, 1]),
            float(min(counts) == 0 and max(counts) > 0),
            _shape(only[0], only[1]),
            nearest,
            likeness,
            *unpaired,
            *self._heads(contents),
            *self._exchanged(comparison, moved, lexicon, language),
            min(len(stored.tokens), len(asked.tokens)) / max(1, len(stored.tokens), len(asked.tokens)),
            math.log1p(len(stored.tokens) + len(asked.tokens)),
            math.log1p(common),
            math.log1p(len(comparison.gaps)),
            alone,
            float(comparison.alone and min(counts) > 0),
            float(_qualified(comparison, lexicon)),
            self._aside(comparison),
            min(len(comparison.spots), 4),
            min(len(moved), 4),
            float(_some(left, lexicon.modals) != _some(right, lexicon.modals)),
            float(_some(left, lexicon.particles) != _some(right, lexicon.particles)),
            float(stored.forms[:1] != asked.forms[:1]),
            *(float(sign in comparison.signs) for sign in SIGNS),
            english,
            english * cosine,
            alone * cosine,
        ]

    def _aside(self, comparison: Comparison) -> float:
        """How sure it is that what one side adds asks for nothing more; the worst of several, -1..1."""
        added = [gap.stored or gap.asked for gap in comparison.gaps if not (gap.stored and gap.asked)]
        scores = [self._words.asides.score(tuple(token.form for token in gap[:LONGEST])) for gap in added]
        return math.tanh(min(scores, default=0.0) / 3)

    def _content(self, token: Token, lexicon: Lexicon) -> bool:
        return self._comparer.is_content(token, lexicon) and token.form not in lexicon.particles

    def _weigh(self, form: str, language: str) -> float:
        """Rare words matter more, 0..1."""
        zipf = self._words.vocabulary.zipf(form)
        frequency = max(zipf[COLUMNS.index(language)], zipf[0] - 1.0)
        return min(1.0, max(0.0, (_MOST_COMMON - frequency) / (_MOST_COMMON - _RAREST)))

    def _common_weight(self, contents: list[list[str]], language: str) -> float:
        sides = [{_stem(form): form for form in side} for side in contents]
        return sum(self._weight(form, language) for stem, form in sides[0].items() if stem in sides[1])

    def _nearness(self, left: list[str], right: list[str]) -> tuple[float, float]:
        """How near the unmatched words of both sides lie to each other: worst best partner, and as a whole; -1..1."""
        if not left or not right:
            return 0.0, 0.0
        sides = [np.array([self._words.vocabulary.vector(form) for form in side]) for side in (left, right)]
        cosines = _unit(sides[0]) @ _unit(sides[1]).T
        shorter = cosines.max(axis=0 if len(right) <= len(left) else 1)
        whole = _unit(np.array([side.sum(axis=0) for side in sides]))
        return float(shorter.min()), float(whole[0] @ whole[1])

    def _unpaired(self, only: list[list[str]], weights: list[list[float]]) -> tuple[float, float, float]:
        """Likeness of what is unmatched as a whole; the heaviest word without a counterpart, on the better side and the
        worse."""
        if not (only[0] and only[1]):
            return 0.0, 0.0, max([*weights[0], *weights[1]], default=0.0)
        sides = [np.array([self._words.vocabulary.sense(form) for form in side[:_MOST_WORDS]]) for side in only]
        heavy = [np.array(side[:_MOST_WORDS]) for side in weights]
        cosines = np.maximum(sides[0] @ sides[1].T, 0)
        most = [
            float((heavy[0] * (1 - cosines.max(axis=1))).max()),
            float((heavy[1] * (1 - cosines.max(axis=0))).max()),
        ]
        whole = _unit(np.array([side.T @ weight for side, weight in zip(sides, heavy, strict=True)]))
        return float(whole[0] @ whole[1]), min(most), max(most)

    def _heads(self, sides: list[list[str]]) -> tuple[float, float]:
        """The first content words, which mostly say what is wanted: their likeness; how many the other side lacks."""
        if not (sides[0] and sides[1]):
            return 0.0, 0.0
        stems = [{_stem(form) for form in side} for side in sides]
        missing = (_stem(sides[0][0]) not in stems[1]) + (_stem(sides[1][0]) not in stems[0])
        if _stem(sides[0][0]) == _stem(sides[1][0]):
            return 1.0, 0.0
        vectors = [self._words.vocabulary.sense(side[0]) for side in sides]
        return float(vectors[0] @ vectors[1]), float(missing)

    def _exchanged(
        self, comparison: Comparison, moved: set[str], lexicon: Lexicon, language: str
    ) -> tuple[float, float, float]:
        """Gaps in which content stands for other content: how many; the worst, by weight and unlikeness, of all and of
        those with content that both have on either hand."""
        count, worst, inner = 0, 0.0, 0.0
        for gap in comparison.gaps:
            sides = [
                [t.form for t in side if self._content(t, lexicon) and _stem(t.form) not in moved]
                for side in (gap.stored, gap.asked)
            ]
            if not (sides[0] and sides[1]):
                continue
            count += 1
            weights = [[self._weight(form, language) for form in side] for side in sides]
            vectors = [np.array([self._words.vocabulary.sense(form) for form in side]) for side in sides]
            whole = _unit(
                np.array([v.T @ np.array(w, dtype=np.float32) for v, w in zip(vectors, weights, strict=True)])
            )
            unlike = min(max(weights[0]), max(weights[1])) * (1 - max(0.0, float(whole[0] @ whole[1])))
            worst = max(worst, unlike)
            if not gap.first:
                inner = max(inner, unlike)
        return float(min(count, 4)), worst, inner


def _qualified(comparison: Comparison, lexicon: Lexicon) -> bool:
    """One side only adds a phrase that a small word leads in, as in `to a child`."""
    added = [gap.stored or gap.asked for gap in comparison.gaps if not (gap.stored and gap.asked)]
    return any(
        len(tokens) > 1 and (tokens[0].form in lexicon.function or tokens[0].form in lexicon.particles)
        for tokens in added
    )


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    unit: NDArray[np.float32] = vectors / (np.sqrt((vectors * vectors).sum(axis=1, keepdims=True)) + np.float32(1e-6))
    return unit


@lru_cache(maxsize=16384)
def _stem(form: str) -> str:
    for ending in ("ies", "ing", "ed", "es", "s", "e"):
        if form.endswith(ending) and len(form) - len(ending) > 3:
            return form[: -len(ending)]
    return form


def _shape(left: list[str], right: list[str]) -> float:
    """How alike the unmatched words are spelt (Dice over letter triples), 0..1."""
    triples = [
        {f" {word} "[place : place + 3] for word in side for place in range(len(word))} for side in (left, right)
    ]
    total = len(triples[0]) + len(triples[1])
    return 2 * len(triples[0] & triples[1]) / total if total else 1.0


def _some(tokens: list[Token], words: frozenset[str]) -> frozenset[str]:
    return frozenset(token.form for token in tokens) & words
