"""Makes the verifier's weights: trains a few small networks on pairs from open texts, and writes one JSON file.

The texts: our own paraphrases (`gateway/cache/data/paraphrases.json`) and Spanish and Portuguese pairs, the same edited
by rule (`edits.py`), our own questions in several frames (`frames.py`), and the prompts of lmarena/arena-hard-auto
(Apache-2.0), which are all different questions.

`python -m training.verifier --arena FILE --pairs FILE --pairs FILE` (JSONL: `text`; `a`, `b`, `label`).
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable, Iterator
from itertools import combinations, product
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from gateway.cache.semantic.embedder import Vector
from gateway.cache.semantic.minilm import MiniLM
from gateway.cache.verifier.differences import Comparer
from gateway.cache.verifier.features import NAMES, Featurer
from gateway.cache.verifier.lexicon import load_words
from gateway.cache.verifier.text import Reader, Reading
from gateway.cache.verifier.verify import WEIGHTS
from training.edits import Editor
from training.frames import Frames
from training.politeness import PHRASES

PARAPHRASES = WEIGHTS.with_name("paraphrases.json")

MEMBERS, HIDDEN, STEPS, RATE, DECAY = 5, 24, 800, 0.01, 0.006
EDITED, WITH_ASIDE = 1000, 200
"""Numbers of edited questions. With more of them, fewer paraphrases are accepted."""
FRAMED = {"en": 1600, "es": 500, "pt": 500}
"""Numbers of questions in other wordings, with three pairs each. With too few edited questions besides, texts with
additions are accepted."""

Pair = tuple[str, str, int]
Array = NDArray[np.float64]


def _rows(path: Path) -> Iterator[dict[str, object]]:
    with path.open("rb") as lines:
        for line in lines:
            yield orjson.loads(line)


def own_pairs() -> Iterator[Pair]:
    """Our own English paraphrases and their near misses."""
    for group in orjson.loads(PARAPHRASES.read_bytes()):
        for left, right in combinations(group["same"], 2):
            yield left, right, 1
            yield right, left, 1
        for left, right in product(group["same"], group["other"]):
            yield left, right, 0
        for left, right in combinations(group["other"], 2):
            yield left, right, 0


def labelled_pairs(paths: Iterable[Path]) -> Iterator[Pair]:
    """Pairs from lines with `a`, `b` and `label`, without pairs in two languages."""
    for path in paths:
        for row in _rows(path):
            if row.get("set") != "mixed":
                yield str(row["a"]), str(row["b"]), int(str(row["label"]))


def edited_pairs(texts: Iterable[str], chance: random.Random) -> tuple[list[Pair], list[Pair]]:
    """Pairs of a question and the same one after an edit: other questions, and the same question with an aside."""
    reader = Reader(load_words())
    by_language: dict[str, list[str]] = {}
    for text in sorted(set(texts)):
        by_language.setdefault(reader.language(text), []).append(text)
    others, same = [], []
    for language, kinds in orjson.loads(PHRASES.read_bytes()).items():
        known = by_language.get(language, [])
        editor = Editor(known, kinds["content_before"] + kinds["content_after"], kinds["harmless"])
        edits = (editor.added, editor.added, editor.inserted, editor.dropped, editor.negated, editor.words)
        for text in known:
            others += [(text, edit(text), 0) for edit in chance.sample(edits, 3)]
            same.append((text, editor.aside(text), 1))
    chance.shuffle(others)
    chance.shuffle(same)
    return others, same


def framed_pairs() -> Iterator[Pair]:
    """Pairs in other wordings (see `frames.py`)."""
    for language, count in FRAMED.items():
        yield from Frames(language).pairs(count)


def neighbours(texts: list[str], embed: Embed, *, least: float = 0.5, most: int = 4) -> Iterator[Pair]:
    """Pairs of different prompts with similar vectors, which are never the same question."""
    known = [text for text in texts if embed(text) is not None]
    vectors = np.array([embed(text) for text in known])
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, 0)
    for row, text in enumerate(known):
        for place in np.argsort(-cosines[row])[:most]:
            if cosines[row, place] > least:
                yield text, known[place], 0


class Embed:
    """The vector of each text, text → vector."""

    def __init__(self) -> None:
        self._model = MiniLM()
        self._vectors: dict[str, Vector | None] = {}

    def __call__(self, text: str) -> Vector | None:
        if text not in self._vectors:
            self._vectors[text] = None if len(text) > 6000 else self._model.embed(text)
        return self._vectors[text]


def features(pairs: Iterable[Pair], embed: Embed, most: int | None = None) -> tuple[Array, Array]:
    """Rows and labels of the first `most` pairs that the rules do not decide, in English, Spanish and Portuguese
    only."""
    words = load_words()
    reader, comparer = Reader(words), Comparer(words)
    featurer = Featurer(words, comparer)
    readings: dict[str, Reading] = {}
    rows: list[list[float]] = []
    labels = []
    for stored, asked, label in pairs:
        left, right = (readings.setdefault(text, reader.read(text)) for text in (stored, asked))
        if not left.language or left.language != right.language:
            continue
        comparison = comparer.compare(left, right)
        if comparison.conflict or comparison.same:
            continue
        if len(rows) == most:
            break
        vectors = embed(stored), embed(asked)
        if vectors[0] is not None and vectors[1] is not None:
            rows.append(featurer.row(left, right, comparison, float(vectors[0] @ vectors[1])))
            labels.append(label)
    return np.array(rows), np.array(labels, dtype=np.float64)


def train(rows: Array, labels: Array, seed: int) -> dict[str, Array]:
    """Train one network by full-batch Adam on the log loss. `rows` must be standardised."""
    chance = np.random.default_rng(seed)
    shapes = {"hidden": (rows.shape[1], HIDDEN), "hidden_bias": (HIDDEN,), "out": (HIDDEN,), "out_bias": ()}
    weights = {
        name: chance.normal(0, 0.3, shape) if "bias" not in name else np.zeros(shape) for name, shape in shapes.items()
    }
    first = {name: np.zeros(shape) for name, shape in shapes.items()}
    second = {name: np.zeros(shape) for name, shape in shapes.items()}
    for step in range(1, STEPS + 1):
        gradients = _gradients(weights, rows, labels)
        for name, gradient in gradients.items():
            if "bias" not in name:
                gradient = gradient + DECAY * weights[name]
            first[name] = 0.9 * first[name] + 0.1 * gradient
            second[name] = 0.999 * second[name] + 0.001 * gradient**2
            step_size = RATE * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
            weights[name] = weights[name] - step_size * first[name] / (np.sqrt(second[name]) + 1e-8)
    return weights


def _gradients(weights: dict[str, Array], rows: Array, labels: Array) -> dict[str, Array]:
    hidden = np.tanh(rows @ weights["hidden"] + weights["hidden_bias"])
    error = (1 / (1 + np.exp(-(hidden @ weights["out"] + weights["out_bias"]))) - labels) / len(labels)
    back = np.outer(error, weights["out"]) * (1 - hidden**2)
    return {
        "hidden": rows.T @ back,
        "hidden_bias": back.sum(axis=0),
        "out": hidden.T @ error,
        "out_bias": np.asarray(error.sum()),
    }


def fit(rows: Array, labels: Array) -> dict[str, object]:
    """The content of the weights file."""
    mean, scale = rows.mean(axis=0), np.maximum(rows.std(axis=0), 0.05)
    members = [train((rows - mean) / scale, labels, seed) for seed in range(MEMBERS)]
    stacked = {name: np.round([member[name] for member in members], 4).tolist() for name in members[0]}
    return {
        "names": list(NAMES),
        "mean": np.round(mean, 5).tolist(),
        "scale": np.round(scale, 5).tolist(),
        **stacked,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arena", type=Path, required=True, help="distinct prompts, JSONL with `text`")
    parser.add_argument("--pairs", type=Path, action="append", default=[], help="JSONL with `a`, `b`, `label`")
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    options = parser.parse_args()
    embed = Embed()
    texts = list(dict.fromkeys(str(row["text"]) for row in _rows(options.arena)))
    labelled = list(labelled_pairs(options.pairs))
    questions = [pair[0] for pair in [*own_pairs(), *labelled]]
    others, same = edited_pairs(questions, random.Random(0))  # noqa: S311 - repeatable, no secret
    parts = [
        features([*own_pairs(), *labelled, *neighbours(texts, embed)], embed),
        features(others, embed, EDITED),
        features(same, embed, WITH_ASIDE),
        features(framed_pairs(), embed),
    ]
    rows = np.concatenate([part[0] for part in parts])
    labels = np.concatenate([part[1] for part in parts])
    options.out.write_bytes(orjson.dumps(fit(rows, labels)))


if __name__ == "__main__":
    main()
