"""How `gateway/cache/data/courtesy.npz` is made: our own polite phrases against pieces of questions and instructions.

`python -m training.politeness --arena FILE --pairs FILE --pairs FILE` (JSONL: `text`; `a`, `b`, `label`).
`--held-out` trains on every other phrase and prints how many of the rest are told right.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from gateway.cache.verifier.politeness import (
    BUCKETS,
    WEIGHTS,
    Politeness,
    buckets,
    dense_row,
    phrase_row,
    unknown_share,
)
from gateway.cache.verifier.text import plain
from gateway.cache.verifier.vocabulary import Vocabulary

PHRASES = Path(__file__).parent / "data" / "courtesies.json"

STEPS, RATE = 800, 0.05
DENSE_DECAY, HASHED_DECAY = 1e-4, 5e-5
"""Hashed words are held back, so that the vectors, which words nobody wrote down have too, carry what they can."""
PIECES = 2
"""Cut from each prompt."""
CAUTION = 2.0
"""A piece of a question taken for politeness weighs so much more than the other error."""
_JOINED = (("greeting", "lead"), ("after", "after"), ("lead", "lead"), ("greeting", "greeting"))

Floats = NDArray[np.float64]
Phrase = tuple[str, ...]
Example = tuple[Phrase, bool]


def words_of(text: str) -> Phrase:
    return tuple(plain(word) for word in re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)*", text.lower()))


def phrases(chosen: slice) -> tuple[list[Example], dict[str, dict[str, list[Phrase]]]]:
    """Our own phrases, `chosen` of each kind: polite or not; and by language and kind."""
    parts = {
        language: {kind: [words_of(text) for text in texts][chosen] for kind, texts in kinds.items()}
        for language, kinds in orjson.loads(PHRASES.read_bytes()).items()
    }
    examples = [
        (phrase, not kind.startswith("content"))
        for kinds in parts.values()
        for kind, found in kinds.items()
        for phrase in found
        if kind != "harmless"
    ]
    return examples, parts


def joined(parts: dict[str, dict[str, list[Phrase]]], chance: random.Random) -> Iterator[Example]:
    """Two polite phrases, as people join them; or a polite one and a piece of content, which is not polite."""
    for kinds in parts.values():
        polite = kinds["greeting"] + kinds["lead"] + kinds["after"]
        content = kinds["content_before"] + kinds["content_after"]
        for _ in polite:
            first, second = chance.choice(_JOINED)
            yield chance.choice(kinds[first]) + chance.choice(kinds[second]), True
            mixed = [chance.choice(polite)]
            mixed.insert(chance.randrange(2), chance.choice(content))
            yield mixed[0] + mixed[1], False


def pieces(texts: Iterable[str], chance: random.Random) -> Iterator[Example]:
    """One to five words from the middle of prompts."""
    for text in texts:
        words = words_of(text[:600])
        for _ in range(PIECES):
            if len(words) > 7:
                start = chance.randrange(5, len(words))
                yield words[start : start + chance.randint(1, 5)], False


def fit(parity: int | None, cut: list[Example], vocabulary: Vocabulary) -> dict[str, Floats]:
    """Word scores on one half of the phrases, the word on the phrase on the other half, and the reverse.

    So the second knows what the first is worth on words that it has not seen. `parity`: only these of our phrases.
    """
    chance = random.Random(0)  # noqa: S311 - repeatable, no secret
    start, step = (0, 1) if parity is None else (parity, 2)
    halves = [slice(start, None, 2 * step), slice(start + step, None, 2 * step)]
    tables, told = [], []
    for number in range(2):
        words = fit_words([*phrases(halves[number])[0], *cut[number::2]], vocabulary)
        model = Politeness(vocabulary, {**words, "phrase": np.zeros(7)})
        examples, parts = phrases(halves[1 - number])
        for phrase, polite in [*examples, *joined(parts, chance), *cut[1 - number :: 4]]:
            row = phrase_row(model.word_scores(phrase), unknown_share(vocabulary, phrase))
            tables.append([*row, 1.0])
            told.append(float(polite))
    labels = np.array(told)
    words = fit_words([*phrases(slice(start, None, step))[0], *cut], vocabulary)
    return {**words, "phrase": _logistic(np.array(tables), labels, np.where(labels > 0, 1.0, CAUTION))}


def fit_words(examples: list[Example], vocabulary: Vocabulary) -> dict[str, Floats]:
    """Whole phrases say of each of their words what it is; longer ones say less of each."""
    rows, places, labels, weights = [], [], [], []
    for phrase, polite in examples:
        for place, word in enumerate(phrase):
            rows.append(dense_row(vocabulary, word))
            places.append(buckets(phrase, place))
            labels.append(float(polite))
            weights.append(1 / len(phrase) ** 0.5)
    dense, hashed = _fit_words(np.array(rows), np.array(places), np.array(labels), np.array(weights))
    return {"dense": dense, "hashed": hashed}


def _fit_words(rows: Floats, places: NDArray[np.int64], labels: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Logistic regression on dense rows and hashed places, full-batch Adam."""
    parameters = [np.zeros(rows.shape[1]), np.zeros(BUCKETS)]
    moments = [(np.zeros_like(values), np.zeros_like(values)) for values in parameters]
    total = weights.sum()
    for step in range(1, STEPS + 1):
        logits = rows @ parameters[0] + parameters[1][places].sum(axis=1)
        error = weights * (1 / (1 + np.exp(-logits)) - labels) / total
        sparse = np.bincount(places.ravel(), np.repeat(error, places.shape[1]), BUCKETS)
        gradients = [
            rows.T @ error + DENSE_DECAY * parameters[0],
            sparse + HASHED_DECAY * parameters[1],
        ]
        for number, gradient in enumerate(gradients):
            first = 0.9 * moments[number][0] + 0.1 * gradient
            second = 0.999 * moments[number][1] + 0.001 * gradient**2
            moments[number] = first, second
            size = RATE * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
            parameters[number] = parameters[number] - size * first / (np.sqrt(second) + 1e-9)
    return parameters[0], parameters[1]


def _logistic(rows: Floats, labels: Floats, weights: Floats) -> Floats:
    """Newton's method, slightly shrunk."""
    found = np.zeros(rows.shape[1])
    for _ in range(30):
        chance = 1 / (1 + np.exp(-(rows @ found)))
        gradient = rows.T @ (weights * (chance - labels)) + 0.1 * found
        curvature = (rows * (weights * chance * (1 - chance))[:, None]).T @ rows + 0.1 * np.eye(rows.shape[1])
        found = found - np.linalg.solve(curvature, gradient)
    return found


def _texts(arena: Path, pairs: Iterable[Path]) -> list[str]:
    texts = [orjson.loads(line)["text"] for line in arena.read_bytes().splitlines()]
    for path in pairs:
        rows = [orjson.loads(line) for line in path.read_bytes().splitlines()]
        # The first text of a pair alone: the second may have politeness that was put in by rule.
        texts += 3 * sorted({row["a"] for row in rows if row["set"] in ("swap_neg", "template")})
    return texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arena", type=Path, required=True)
    parser.add_argument("--pairs", type=Path, action="append", default=[])
    parser.add_argument("--held-out", action="store_true")
    options = parser.parse_args()
    chance = random.Random(0)  # noqa: S311 - repeatable, no secret
    vocabulary = Vocabulary.load()
    cut = list(pieces(_texts(options.arena, options.pairs), chance))
    if options.held_out:
        model = Politeness(vocabulary, fit(0, cut, vocabulary))
        rest, parts = phrases(slice(1, None, 2))
        for name, examples in (("alone", rest), ("joined", list(joined(parts, chance))), ("pieces", cut)):
            for wanted in (True, False):
                told = [model.polite(phrase) for phrase, polite in examples if polite is wanted]
                if told:
                    print(f"{name}, {'polite' if wanted else 'not polite'}: {np.mean(told):.3f} of {len(told)} taken")  # noqa: T201
    else:
        packed = {name: values.astype(np.float16) for name, values in fit(None, cut, vocabulary).items()}
        np.savez_compressed(WEIGHTS, dense=packed["dense"], hashed=packed["hashed"], phrase=packed["phrase"])


if __name__ == "__main__":
    main()
