"""Decides whether two questions have the same answer: rules that refuse, and a learned score."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from gateway.cache.quality.error_bound import LEAST
from gateway.cache.verifier.differences import Comparer, Comparison
from gateway.cache.verifier.features import NAMES, row
from gateway.cache.verifier.lexicon import Words, load_words
from gateway.cache.verifier.text import Reader, Reading

WEIGHTS = Path(__file__).parents[1] / "data" / "verifier.json"

_READINGS = 4096
_SAME_FLOOR = {"en": 0.85, "es": 0.6, "pt": 0.6}
"""Least cosine at which harmless differences are believed; MiniLM places accents and marks badly outside English."""
_PARAPHRASE_FLOOR = 0.62
_LONGEST_QUESTION = 30
"""Tokens; in a longer text every word may matter, and similarity sees none of them."""
FOREIGN_BAR = 0.5
"""Outside English: below it, of pairs with other words and another answer more than a twentieth pass."""


@dataclass(frozen=True, slots=True)
class Verdict:
    accepted: bool
    score: float
    """0..1: how sure."""
    reason: str
    """The conflict found, or same | paraphrase | unsure."""


class Scorer:
    """The learned half: a few small networks, averaged, in plain NumPy."""

    def __init__(self, weights: dict[str, list[object]]) -> None:
        if tuple(weights["names"]) != NAMES:
            raise ValueError("the verifier's weights belong to other features; fit it again")
        self._mean, self._scale = self._array(weights["mean"]), self._array(weights["scale"])
        self._hidden, self._hidden_bias = self._array(weights["hidden"]), self._array(weights["hidden_bias"])
        self._out, self._out_bias = self._array(weights["out"]), self._array(weights["out_bias"])

    @staticmethod
    def _array(values: list[object]) -> NDArray[np.float64]:
        return np.array(values, dtype=np.float64)

    @classmethod
    @lru_cache(maxsize=1)
    def load(cls) -> Scorer:
        return cls(orjson.loads(WEIGHTS.read_bytes()))

    def score(self, row: list[float]) -> float:
        """Probability that the stored answer serves, 0..1."""
        inputs = (np.array(row) - self._mean) / self._scale
        hidden = np.tanh(np.einsum("mij,i->mj", self._hidden, inputs) + self._hidden_bias)
        logits = np.einsum("mj,mj->m", hidden, self._out) + self._out_bias
        return float(np.mean(1 / (1 + np.exp(-logits))))


class Verifier:
    """Decides on pairs of last user turns; remembers how it read recent texts. For one thread."""

    def __init__(self, words: Words, scorer: Scorer | None) -> None:
        """Without a scorer only harmless differences pass."""
        self._words = words
        self.reader = Reader(words)
        self._comparer = Comparer(words)
        self._scorer = scorer
        self._readings: OrderedDict[tuple[str, str], Reading] = OrderedDict()

    @classmethod
    def load(cls) -> Verifier:
        """With the packaged words and weights; reads files."""
        return cls(load_words(), Scorer.load())

    def read(self, text: str, language: str = "") -> Reading:
        """`language`: what it is probably written in, if it does not say so itself."""
        reading = self._readings.get((text, language))
        if reading is None:
            reading = self._readings[text, language] = self.reader.read(text, language)
            if len(self._readings) > _READINGS:
                self._readings.popitem(last=False)
        return reading

    def varies(self, text: str) -> bool:
        """Must `text` never be answered by meaning: about now, by chance, or a wish for something new?"""
        return self.reader.varies(text)

    def verify(self, stored: str, asked: str, cosine: float, *, max_error: float = 0.01) -> Verdict:
        """May the answer to `stored` be given to `asked`? `max_error`: wrong hits allowed, as a share of look-ups."""
        if stored == asked:
            return Verdict(True, 1.0, "same")
        left, right, comparison = self._compared(stored, asked)
        if left.empty or right.empty:
            return Verdict(False, 0.0, "empty")
        if comparison.conflict:
            return Verdict(False, 0.0, comparison.conflict)
        if self._same(left, right, comparison, cosine):
            return Verdict(True, 0.98 if comparison.gaps else 1.0, "same")
        bar = next((least for error, least in LEAST if max_error >= error), 2.0)
        if self._scorer is None or bar > 1 or not self._open(left, right, comparison, cosine):
            return Verdict(False, 0.0, "unsure")
        if left.language != "en":
            bar = max(bar, FOREIGN_BAR)
        score = self._scorer.score(row(left, right, comparison, cosine, self._words.vocabulary))
        return Verdict(score >= bar, score, "paraphrase" if score >= bar else "unsure")

    def features(self, stored: str, asked: str, cosine: float) -> list[float] | None:
        """What the networks see of a pair; None where they are not asked."""
        left, right, comparison = self._compared(stored, asked)
        decided = comparison.conflict or left.empty or right.empty or self._same(left, right, comparison, cosine)
        if decided or not self._open(left, right, comparison, cosine):
            return None
        return row(left, right, comparison, cosine, self._words.vocabulary)

    def _compared(self, stored: str, asked: str) -> tuple[Reading, Reading, Comparison]:
        left, right = self.read(stored), self.read(asked)
        if not left.language and right.language:
            left = self.read(stored, right.language)
        elif not right.language and left.language:
            right = self.read(asked, left.language)
        return left, right, self._comparer.compare(left, right)

    @staticmethod
    def _same(left: Reading, right: Reading, comparison: Comparison, cosine: float) -> bool:
        """Is every difference harmless, and the cosine not against it?"""
        floor = _SAME_FLOOR[left.language or right.language or "en"]
        return comparison.same and (not comparison.gaps or cosine >= floor)

    @staticmethod
    def _open(left: Reading, right: Reading, comparison: Comparison, cosine: float) -> bool:
        """Whether the networks may decide: two short questions of one language in other words. A text that was edited
        in one place, or an instruction on a text to process, is never decided by a score."""
        long = max(len(left.tokens), len(right.tokens)) > _LONGEST_QUESTION
        foreign = not left.language or left.language != right.language
        return cosine >= _PARAPHRASE_FLOOR and not (foreign or comparison.exchanged or long or left.payload)
