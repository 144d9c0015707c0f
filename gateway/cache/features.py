"""What the learned half of the verifier looks at: a dozen and a half numbers about one pair of questions."""

from __future__ import annotations

import math

from gateway.cache.compare import Comparer, Comparison
from gateway.cache.text import Reading, Token
from gateway.cache.words import Lexicon, Words

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
    "length_ratio",
    "common_content",
    "gaps",
    "moved",
    "question_differs",
    "modal_differs",
    "particle_differs",
    "english",
    "english_cosine",
)


class Featurer:
    """Comparison → feature row. Pure; tens of microseconds."""

    def __init__(self, words: Words, comparer: Comparer) -> None:
        self._words = words
        self._comparer = comparer

    def row(self, stored: Reading, asked: Reading, comparison: Comparison, cosine: float) -> list[float]:
        """One number per name in `NAMES`."""
        lexicon = self._comparer.lexicon(stored, asked)
        left = [token for gap in comparison.gaps for token in gap.stored]
        right = [token for gap in comparison.gaps for token in gap.asked]
        stems = [{_stem(token.form) for token in side if self._content(token, lexicon)} for side in (left, right)]
        moved = stems[0] & stems[1]
        only = [sorted(side - moved) for side in stems]
        weights = [[self._weight(stem) for stem in side] for side in only]
        common = comparison.matched + len(moved)
        common_weight = self._common_weight(stored, asked, lexicon)
        totals = [sum(side) for side in weights]
        counts = [len(side) for side in only]
        one_gap = len(comparison.gaps) == 1
        english = float(stored.language in ("", "en"))
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
            min(len(stored.tokens), len(asked.tokens)) / max(1, len(stored.tokens), len(asked.tokens)),
            math.log1p(common),
            float(one_gap),
            min(len(moved), 4),
            float(_first_question(stored, lexicon) != _first_question(asked, lexicon)),
            float(_some(left, lexicon.modals) != _some(right, lexicon.modals)),
            float(_some(left, self._words.particles) != _some(right, self._words.particles)),
            english,
            english * cosine,
        ]

    def _content(self, token: Token, lexicon: Lexicon) -> bool:
        return self._comparer.is_content(token, lexicon) and token.form not in self._words.particles

    def _weight(self, stem: str) -> float:
        """Rare words matter more; the embedder's vocabulary is sorted by frequency."""
        rank = self._words.vocabulary.get(stem, 30000)
        return math.log(max(rank - 1900, 40) / 40) / math.log(28100 / 40)

    def _common_weight(self, stored: Reading, asked: Reading, lexicon: Lexicon) -> float:
        sides = [
            {_stem(token.form) for token in reading.tokens if self._content(token, lexicon)}
            for reading in (stored, asked)
        ]
        return sum(self._weight(stem) for stem in sides[0] & sides[1])


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


def _first_question(reading: Reading, lexicon: Lexicon) -> str:
    return next((lexicon.questions[form] for form in reading.forms if form in lexicon.questions), "")


def _some(tokens: list[Token], words: frozenset[str]) -> frozenset[str]:
    return frozenset(token.form for token in tokens) & words
