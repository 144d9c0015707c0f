"""Decides whether two questions have the same answer. It uses rules, which can only refuse a pair, and a learned
score."""

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
"""Language → minimum cosine of a pair whose differences are all harmless. Only with this cosine is the pair accepted.
The minimum is lower for languages other than English, because MiniLM's vectors represent accents and marks badly."""
_PARAPHRASE_FLOOR = 0.62
_REPLACED_FLOOR = 0.88
"""Minimum cosine of two questions that differ at only one position, where more than two words are replaced."""
_LONGEST_QUESTION = 30
"""Maximum tokens of a question that gets a score. In a longer text every word may matter, and the cosine does not show
single words."""
FOREIGN_BAR = 0.55
"""Minimum score of a pair of Spanish or Portuguese questions. With a lower minimum, more than 5 % of the pairs that
look like paraphrases, but have different answers, would be accepted."""
_CROWD = 1500
"""Maximum number of stored questions for which the networks' probability needs no correction."""


@dataclass(frozen=True, slots=True)
class Verdict:
    accepted: bool
    score: float
    """Confidence that the answer is right, from 0 to 1."""
    reason: str
    """The conflict that was found; or one of same | paraphrase | unsure."""


class Scorer:
    """The learned part of the verifier: the mean of a few small neural networks, computed with plain NumPy."""

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
        """Probability from 0 to 1 that the stored answer also answers the new question."""
        inputs = (np.array(row) - self._mean) / self._scale
        hidden = np.tanh(np.einsum("mij,i->mj", self._hidden, inputs) + self._hidden_bias)
        logits = np.einsum("mj,mj->m", hidden, self._out) + self._out_bias
        return float(np.mean(1 / (1 + np.exp(-logits))))


def crowded(probability: float, questions: int) -> float:
    """Correct the networks' `probability` that a candidate's answer is right. `questions`: number of stored
    questions.

    With many stored questions, some resemble the new one by chance. So the odds are divided by `questions` /
    `_CROWD`.
    """
    if questions <= _CROWD:
        return probability
    return probability / (probability + (1 - probability) * questions / _CROWD)


class Verifier:
    """Compares two last user messages. The parsed forms of recent texts are cached. The object is not thread-safe."""

    def __init__(self, words: Words, scorer: Scorer | None) -> None:
        """`scorer`: computes the learned score. None: only pairs whose differences are all harmless are accepted."""
        self._words = words
        self.reader = Reader(words)
        self._comparer = Comparer(words)
        self._scorer = scorer
        self._readings: OrderedDict[tuple[str, str], Reading] = OrderedDict()

    @classmethod
    def load(cls) -> Verifier:
        """A verifier with the packaged words and weights, read from files."""
        return cls(load_words(), Scorer.load())

    def read(self, text: str, language: str = "") -> Reading:
        """The parsed form of `text`. `language`: the probable language, used if `text` itself does not show its
        language."""
        reading = self._readings.get((text, language))
        if reading is None:
            reading = self._readings[text, language] = self.reader.read(text, language)
            if len(self._readings) > _READINGS:
                self._readings.popitem(last=False)
        return reading

    def varies(self, text: str) -> bool:
        """Whether the answer to `text` depends on the time or on chance, or `text` asks for a new text (a poem, another
        joke). Then a semantic hit is refused."""
        return self.reader.varies(text)

    def verify(self, stored: str, asked: str, cosine: float, *, max_error: float = 0.01, among: int = 1) -> Verdict:
        """Decide whether the answer to `stored` may be used for `asked`. `cosine`: cosine of the vectors of both texts.

        `max_error`: allowed share of wrong hits. `among`: number of stored questions that were searched.
        """
        if stored == asked:
            return Verdict(True, 1.0, "same")
        left, right, comparison = self.compared(stored, asked)
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
        score = crowded(self._scorer.score(row(left, right, comparison, cosine, self._words.vocabulary)), among)
        return Verdict(score >= bar, score, "paraphrase" if score >= bar else "unsure")

    def features(self, stored: str, asked: str, cosine: float) -> list[float] | None:
        """The input of the networks for a pair of questions. None if the networks do not decide about this pair."""
        left, right, comparison = self.compared(stored, asked)
        decided = comparison.conflict or left.empty or right.empty or self._same(left, right, comparison, cosine)
        if decided or not self._open(left, right, comparison, cosine):
            return None
        return row(left, right, comparison, cosine, self._words.vocabulary)

    def compared(self, stored: str, asked: str) -> tuple[Reading, Reading, Comparison]:
        """The parsed forms of both texts, and their differences."""
        left, right = self.read(stored), self.read(asked)
        if not left.language and right.language:
            left = self.read(stored, right.language)
        elif not right.language and left.language:
            right = self.read(asked, left.language)
        return left, right, self._comparer.compare(left, right)

    @staticmethod
    def _same(left: Reading, right: Reading, comparison: Comparison, cosine: float) -> bool:
        """Whether every difference is harmless, and the cosine is high enough."""
        floor = _SAME_FLOOR[left.language or right.language or "en"]
        return comparison.same and (not comparison.gaps or cosine >= floor)

    @staticmethod
    def _open(left: Reading, right: Reading, comparison: Comparison, cosine: float) -> bool:
        """Whether the networks may decide about a pair of questions.

        Both questions must be short, must be in the same language, and must not contain a text to process, such as
        code. The networks may not decide if one or two words are replaced (`Comparison.exchanged`). If more words are
        replaced, they may decide only if the cosine is high.
        """
        if comparison.exchanged or (comparison.replaced and cosine < _REPLACED_FLOOR):
            return False
        long = max(len(left.tokens), len(right.tokens)) > _LONGEST_QUESTION
        foreign = not left.language or left.language != right.language
        return cosine >= _PARAPHRASE_FLOOR and not (foreign or long or left.payload)
