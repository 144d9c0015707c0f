"""Computes ten features of a pair of questions for the networks of the verifier. The order of the two questions does
not change the features."""

from __future__ import annotations

import math
from functools import lru_cache

from gateway.cache.verifier.align import stem
from gateway.cache.verifier.differences import Comparison
from gateway.cache.verifier.text import Reading
from gateway.cache.verifier.vocabulary import Vocabulary

NAMES = (
    "cosine",
    "letters",
    "overlap",
    "contained",
    "least_unmatched",
    "most_unmatched",
    "least_rarest",
    "most_rarest",
    "shorter",
    "longer",
)


def row(stored: Reading, asked: Reading, comparison: Comparison, cosine: float, vocabulary: Vocabulary) -> list[float]:
    """The features, shape (len(`NAMES`),), the same if the two questions are swapped. Words are weighted: every sum of
    words is a sum of their rarities.

    `letters`: Jaccard index of letter triples. `overlap`: common words / all words. `contained`: common words / words
    of the text with the smaller sum. `unmatched`: words of only one text. `rarest`: the rarest of these. `least_`,
    `most_`: lower and higher value of the two texts. `shorter`, `longer`: log of token counts.
    """
    language = stored.language or asked.language or "en"
    weights = [[vocabulary.rarity(form, language) for form in side] for side in comparison.unmatched]
    totals = [sum(side) for side in weights]
    rarest = [max(side, default=0.0) for side in weights]
    whole = sum(vocabulary.rarity(form, language) for each in (stored, asked) for form in _stems(each.forms))
    common = max(0.0, (whole - sum(totals)) / 2)
    triples = [_triples(each.forms) for each in (stored, asked)]
    lengths = sorted((len(stored.tokens), len(asked.tokens)))
    return [
        cosine,
        len(triples[0] & triples[1]) / max(1, len(triples[0] | triples[1])),
        common / max(1e-6, common + sum(totals)),
        common / max(1e-6, common + min(totals)),
        min(totals),
        max(totals),
        min(rarest),
        max(rarest),
        math.log1p(lengths[0]),
        math.log1p(lengths[1]),
    ]


@lru_cache(maxsize=4096)
def _stems(forms: tuple[str, ...]) -> tuple[str, ...]:
    """The words in `forms`, but only one word for each stem."""
    return tuple({stem(form): form for form in forms}.values())


@lru_cache(maxsize=4096)
def _triples(forms: tuple[str, ...]) -> frozenset[str]:
    text = f" {' '.join(forms)} "
    return frozenset(text[place : place + 3] for place in range(len(text) - 2))
