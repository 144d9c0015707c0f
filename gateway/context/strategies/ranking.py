"""Ranks the passages of a document by how well they fit a question: by common words (BM25) and by vectors."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from gateway.context.strategies.passages import Passage, sentence_ends
from gateway.domain.text.function_words import FUNCTION_WORDS
from gateway.domain.text.normalisation import without_accents

_WORD = re.compile(r"\w+")
_K1, _B = 1.2, 0.5
"""The usual constants of BM25: how fast the repetition of a word saturates, and how far long sentences count less."""
_STEM = 5
"""Number of letters at the beginning of a word. This beginning also counts as a word, so that inflected forms match."""
_STEM_WEIGHT = 0.6
_LEAST_WORDS, _FULL_WORDS = 3, 4
"""`_LEAST_WORDS`: minimum words of a sentence whose novelty counts. If a sentence has fewer than `_FULL_WORDS` words,
its novelty counts less."""
_PLAIN = frozenset(word for words in FUNCTION_WORDS.values() for word in words)


def terms(text: str) -> list[str]:
    """The words of a text, without accents and function words. For a longer word, the list also has
    its beginning, with a tilde.
    """
    found = []
    for word in _WORD.findall(text.lower()):
        if word in _PLAIN:
            continue
        plain = without_accents(word)
        found.append(plain)
        if len(plain) > _STEM:
            found.append(f"{plain[:_STEM]}~")
    return found


class Words:
    """An index of the sentences of one document."""

    def __init__(self, text: str, passages: Sequence[Passage]) -> None:
        self._sentences: list[tuple[int, Counter[str], int]] = []
        """(Number of the passage, terms, number of terms) of each sentence."""
        known: Counter[str] = Counter()
        for number, passage in enumerate(passages):
            start = passage.start
            for end in sentence_ends(text, passage.start, passage.end):
                counted = Counter(terms(text[start:end]))
                start = end
                if counted:
                    self._sentences.append((number, counted, counted.total()))
                    known.update(counted.keys())
        self._known, self._passages = known, len(passages)
        self._mean = sum(size for *_, size in self._sentences) / max(1, len(self._sentences))

    def scores(self, question: str) -> list[float]:
        """For each passage, the BM25 score of its best sentence."""
        best = [0.0] * self._passages
        wanted = {term: self._rarity(term) for term in set(terms(question)) if term in self._known}
        for number, counted, size in self._sentences:
            norm = _K1 * (1 - _B + _B * size / self._mean)
            score = sum(
                rarity * often * (_K1 + 1) / (often + norm)
                for term, rarity in wanted.items()
                if (often := counted[term])
            )
            best[number] = max(best[number], score)
        return best

    def novelties(self) -> list[float]:
        """For each passage, the share of words that occur nowhere else in the document, in the sentence with the
        highest share.

        A fact that answers a question usually has such words: names, numbers, terms.
        """
        best = [0.0] * self._passages
        for number, counted, _ in self._sentences:
            words = [term for term in counted if not term.endswith("~")]
            if len(words) >= _LEAST_WORDS:
                alone = sum(self._known[word] == 1 for word in words)
                best[number] = max(best[number], alone / max(len(words), _FULL_WORDS))
        return best

    def _rarity(self, term: str) -> float:
        count, known = len(self._sentences), self._known[term]
        return math.log(1 + (count - known + 0.5) / (known + 0.5)) * (_STEM_WEIGHT if term.endswith("~") else 1.0)


def scaled(values: Sequence[float]) -> list[float]:
    """Scale `values` so that the lowest is 0 and the highest is 1."""
    low, high = min(values), max(values)
    return [(value - low) / (high - low) if high > low else 0.0 for value in values]
