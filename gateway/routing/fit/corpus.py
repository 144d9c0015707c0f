"""Reads training prompts into arrays, and divides them into prompts for training and for tests."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gateway.routing.difficulty.features import COUNTS, VOCABULARY_BITS, Features, extract, normalise
from gateway.routing.difficulty.ridge import Array
from gateway.routing.fit.evaluation import Outcome, read_outcomes

SEEN_IN = 3
"""Minimum number of training prompts in which a word must occur to be part of the vocabulary."""

_FIRST_OPTION = re.compile(r"(?: |^)\(?a[.)] ")
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Corpus:
    """The training prompts: n prompts in k sets."""

    outcomes: Sequence[Outcome]
    features: Sequence[Features]
    names: tuple[str, ...]
    sets: NDArray[np.int64]
    """Index of each prompt's set in `names`."""
    questions: NDArray[np.uint64]
    """For each prompt, a number that is equal for all variants of one question. All prompts with equal numbers are in
    the same fold, so that no model is tested on a variant of a prompt on which it was trained."""
    weak: Array
    strong: Array
    rows: NDArray[np.int64]
    bins: NDArray[np.int64]
    counts: NDArray[np.float32]
    lexical: Array

    def __len__(self) -> int:
        return len(self.outcomes)


def read_corpus(paths: Iterable[Path], progress: Progress) -> Corpus:
    """Read all distinct pairs (set, prompt) in the files. `progress(line)`: called with a line of text during the work.
    Raises DataError, OSError."""
    outcomes = list({(each.group, each.prompt): each for path in paths for each in read_outcomes(path)}.values())
    progress(f"{len(outcomes)} prompts read")
    features = []
    for number, outcome in enumerate(outcomes, 1):
        features.append(extract(outcome.prompt))
        if number % 5000 == 0:
            progress(f"{number} of {len(outcomes)} prompts measured")
    names = tuple(dict.fromkeys(each.group for each in outcomes))
    return Corpus(
        outcomes,
        features,
        names,
        np.array([names.index(each.group) for each in outcomes], dtype=np.int64),
        np.array([_question(each.prompt) for each in outcomes], dtype=np.uint64),
        np.array([each.weak for each in outcomes]),
        np.array([each.strong for each in outcomes]),
        np.repeat(np.arange(len(outcomes)), [len(each.bins) for each in features]),
        np.concatenate([each.bins for each in features]),
        np.concatenate([each.counts for each in features]),
        np.array([each.lexical for each in features], dtype=np.float64),
    )


def _question(prompt: str) -> int:
    """A hash of the first sentences of the question in `prompt`. Lettered options (A, B, C …) and the final instruction
    are left out. Variants of a question have the same hash."""
    stem = _FIRST_OPTION.split(normalise(prompt))[0]
    key = ""
    for number, sentence in enumerate(re.split(r"(?<=[.!?]) ", stem)):
        if number >= 2 and len(key) >= 60:
            break
        key += re.sub(r"\W+", "", sentence)
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest())


def known_words(corpus: Corpus, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """A mask of the words in the vocabulary. A word is in the vocabulary if it occurs in at least `SEEN_IN` of the
    `chosen` prompts."""
    texts = [corpus.features[number] for number in np.flatnonzero(chosen).tolist()]
    places = np.concatenate([np.unique(text.vocabulary) for text in texts])
    return np.bincount(places, minlength=1 << VOCABULARY_BITS) >= SEEN_IN


def coverage(corpus: Corpus, words: NDArray[np.bool_], chosen: NDArray[np.bool_]) -> Array:
    """The share of known words in each chosen prompt that has words. `words`: mask of the known words."""
    places = [corpus.features[number].vocabulary for number in np.flatnonzero(chosen).tolist()]
    return np.array([words[each].mean() for each in places if len(each)])


def strangeness(corpus: Corpus, training: NDArray[np.bool_], chosen: NDArray[np.bool_]) -> Array:
    """A number for each chosen prompt that tells how much it differs from the `training` prompts: the root mean square
    distance of its lexical counts, in standard deviations."""
    mean, deviation = spread(corpus, training)
    standard: Array = np.sqrt((((corpus.lexical[chosen] - mean) / deviation)[:, :COUNTS] ** 2).mean(1))
    return standard


def spread(corpus: Corpus, chosen: NDArray[np.bool_]) -> tuple[Array, Array]:
    """The mean and the standard deviation of each lexical count over the chosen prompts."""
    return corpus.lexical[chosen].mean(0), corpus.lexical[chosen].std(0) + 1e-9


def folds(corpus: Corpus, count: int) -> list[NDArray[np.bool_]]:
    """Divide the prompts into `count` folds for cross-validation, and return the test mask of each. All variants of a
    question are in the same fold."""
    return [corpus.questions % np.uint64(count) == number for number in range(count)]


def without(corpus: Corpus, held_out: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """A mask of the prompts that may be used for training: all except the held-out prompts and the variants of their
    questions."""
    return ~held_out & ~np.isin(corpus.questions, corpus.questions[held_out])
