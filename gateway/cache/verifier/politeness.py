"""Recognises polite phrases before and after a question, by learned scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from gateway.cache.verifier.vocabulary import Vocabulary

WEIGHTS = Path(__file__).parents[1] / "data" / "courtesy.npz"

BUCKETS = 4096
"""Number of hash buckets for words and for pairs of neighbouring words."""
LONGEST = 14
"""Maximum words of a polite phrase."""
SURE, CERTAIN = 0.0, 1.0
"""Minimum scores (log-odds) of a polite phrase. `SURE` is for a phrase that only one text has. `CERTAIN` is for a
phrase that is removed before the texts are compared."""

Floats = NDArray[np.float64]


def buckets(words: Sequence[str], place: int) -> tuple[int, int, int]:
    """The hash buckets of the word at `place`, and of its pairs with both neighbours."""
    before = words[place - 1] if place else "^"
    after = words[place + 1] if place + 1 < len(words) else "$"
    pairs = (words[place], f"{before} {words[place]}", f"{words[place]} {after}")
    one, two, three = (crc32(pair.encode()) % BUCKETS for pair in pairs)
    return one, two, three


def phrase_row(scores: Floats, unknown: float) -> list[float]:
    """The features of a whole phrase: figures computed from its words' `scores`, and the share of `unknown` words."""
    padded = np.concatenate([scores[:1], scores, scores[-1:]])
    smooth = 0.25 * padded[:-2] + 0.5 * scores + 0.25 * padded[2:]
    return [
        float(scores.mean()),
        float(scores.min()),
        float(smooth.min()),
        float(scores.max()),
        math.log(len(scores)),
        unknown,
    ]


class Politeness:
    def __init__(self, vocabulary: Vocabulary, weights: dict[str, Floats]) -> None:
        """`weights`: contains `dense` of shape (width + 4,), `hashed` of shape (buckets,) and `phrase` of shape (6 +
        1,)."""
        self._vocabulary = vocabulary
        self._dense, self._hashed, self._phrase = weights["dense"], weights["hashed"], weights["phrase"]
        self.score = lru_cache(maxsize=8192)(self._score)
        self._dense_score = lru_cache(maxsize=16384)(self._weigh)

    @classmethod
    @lru_cache(maxsize=1)
    def load(cls) -> Politeness:
        weights = np.load(WEIGHTS)
        return cls(Vocabulary.load(), {name: weights[name].astype(np.float64) for name in weights.files})

    def polite(self, words: Sequence[str], least: float = SURE) -> bool:
        """Whether the sequence `words` is a polite phrase. An empty sequence counts as a polite phrase. `least`:
        minimum score."""
        return not words or (len(words) <= LONGEST and self.score(tuple(words)) > least)

    def word_scores(self, words: Sequence[str]) -> Floats:
        """For each word, the log-odds that it belongs to a polite phrase and not to a question. Shape (words,)."""
        dense = [self._dense_score(word) for word in words]
        hashed = [self._hashed[list(buckets(words, place))].sum() for place in range(len(words))]
        scores: Floats = np.array(dense) + np.array(hashed)
        return scores

    def _weigh(self, word: str) -> float:
        return float(np.dot(dense_row(self._vocabulary, word), self._dense))

    def _score(self, words: tuple[str, ...]) -> float:
        row = phrase_row(self.word_scores(words), unknown_share(self._vocabulary, words))
        return float(np.dot(self._phrase[:-1], row) + self._phrase[-1])


def dense_row(vocabulary: Vocabulary, word: str) -> list[float]:
    """The input for the dense weights of one word: its vector, its frequencies in the three languages, and a
    constant 1.
    """
    zipf = vocabulary.zipf(word)
    return [*map(float, vocabulary.vector(word)), *(value / 4 for value in zipf[:3]), 1.0]


def unknown_share(vocabulary: Vocabulary, words: Sequence[str]) -> float:
    return sum(not any(vocabulary.zipf(word)) for word in words) / len(words)
