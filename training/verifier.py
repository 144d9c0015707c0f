"""Fits the verifier's three small networks on open pairs of questions, and writes them as one JSON file.

Of each pair that no sign decides, the networks see ten symmetric features. The pairs: open sources (their attribution
is in NOTICE), edits of these by rule, our own paraphrases (`gateway/cache/data/paraphrases.json`), our own Spanish and
Portuguese pairs, and our own questions in several frames (`frames.py`).

`python -m training.verifier --open FOLDER --pairs FILE --pairs FILE [--vectors FILE]` (JSONL: `a`, `b`, `label`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from gateway.cache.verifier.features import NAMES
from gateway.cache.verifier.lexicon import Words, load_words
from gateway.cache.verifier.verify import WEIGHTS, Verifier
from training.frames import Frames
from training.vectors import Vectors

PARAPHRASES = WEIGHTS.with_name("paraphrases.json")

MEMBERS, HIDDEN, STEPS, RATE, DECAY = 3, 24, 300, 0.01, 0.003
FRAMED = {"en": 800, "es": 250, "pt": 250}
"""Questions in other frames, three pairs of each."""
TRUTH = {
    "sqframes": (0.92, 0.98),
    "simplequestions": (0.91, 0.97),
    "tatoeba": (0.93, 0.94),
    "homeassistant": (0.95, 0.9),
    "pira": (0.8, 0.94),
    "advising": (0.84, 0.93),
    "webquestions": (0.84, 0.93),
    "rqe": (0.67, 0.97),
    "covidfaq": (0.75, 0.95),
    "clinc150": (0.7, 0.9),
    "banking77": (0.68, 0.92),
    "medquad": (0.35, 0.98),
}
"""Open source → share of its labels 1 and 0 that a reader found right, in 20 to 45 pairs each."""

EITHER, MIXED = 2, 3
"""Halves of pairs that are in no cluster, and of those whose two questions are in different halves."""

Array = NDArray[np.float64]


class Pair(NamedTuple):
    stored: str
    asked: str
    label: int
    weight: float = 1.0
    half: int = EITHER
    """0 or 1: both questions are of clusters of this half."""


@dataclass(frozen=True, slots=True)
class Table:
    """What the networks are fitted on: one row for each pair that no sign decides."""

    rows: Array
    labels: Array
    weights: Array
    halves: NDArray[np.int64]

    def without(self, half: int) -> Table:
        """The rows that a model may be fitted on which is judged on `half`."""
        kept = (self.halves == 1 - half) | (self.halves == EITHER)
        return Table(self.rows[kept], self.labels[kept], self.weights[kept], self.halves[kept])


def half_of(cluster: object) -> int:
    """0 or 1, always the same for one cluster."""
    return blake2b(str(cluster).encode(), digest_size=1).digest()[0] & 1


def _rows(path: Path) -> Iterator[dict[str, object]]:
    with path.open("rb") as lines:
        for line in lines:
            yield orjson.loads(line)


def own_pairs() -> Iterator[Pair]:
    """Our own English paraphrases and their near misses."""
    for group in orjson.loads(PARAPHRASES.read_bytes()):
        for left, right in combinations(group["same"], 2):
            yield Pair(left, right, 1)
        for left, right in product(group["same"], group["other"]):
            yield Pair(left, right, 0)
        for left, right in combinations(group["other"], 2):
            yield Pair(left, right, 0)


def labelled_pairs(paths: Iterable[Path]) -> Iterator[Pair]:
    """`a`, `b`, `label`; pairs in two languages are no matter of this model."""
    for path in paths:
        for row in _rows(path):
            if row.get("set") != "mixed":
                yield Pair(str(row["a"]), str(row["b"]), int(str(row["label"])))


def open_pairs(folder: Path) -> Iterator[Pair]:
    """Each source's pairs, weighted by how far its labels are to be believed, and the edits of all."""
    halves = {str(row["text"]): half_of(row["cluster"]) for row in _rows(folder / "texts.jsonl")}
    for source, (same, other) in {**TRUTH, "own_edits": (1.0, 1.0)}.items():
        name = source if source == "own_edits" else f"{source}_pairs"
        for row in _rows(folder / f"{name}.jsonl"):
            left, right, label = str(row["a"]), str(row["b"]), int(str(row["label"]))
            known = {halves[text] for text in (left, right) if text in halves}
            half = MIXED if len(known) == 2 else min(known, default=EITHER)
            yield Pair(left, right, label, 2 * (same if label else other) - 1, half)


def framed_pairs() -> Iterator[Pair]:
    """The same or another matter, in another frame."""
    for language, count in FRAMED.items():
        yield from (Pair(*pair) for pair in Frames(language).pairs(count))


def table(pairs: Iterable[Pair], vectors: Vectors, words: Words | None = None) -> Table:
    """The pairs that the networks decide on while serving."""
    verifier = Verifier(words or load_words(), None)
    found = []
    for pair in pairs:
        cosine = vectors.cosine(pair.stored, pair.asked)
        row = verifier.features(pair.stored, pair.asked, cosine)
        if row is not None:
            found.append((row, pair.label, pair.weight, pair.half))
    rows, labels, weights, halves = zip(*found, strict=True)
    return Table(np.array(rows), np.array(labels, dtype=np.float64), np.array(weights), np.array(halves))


def train(rows: Array, labels: Array, weights: Array, seed: int) -> dict[str, Array]:
    """One network, full-batch Adam on the weighted log loss; `rows` are standardised."""
    chance = np.random.default_rng(seed)
    shapes = {"hidden": (rows.shape[1], HIDDEN), "hidden_bias": (HIDDEN,), "out": (HIDDEN,), "out_bias": ()}
    found = {
        name: chance.normal(0, 0.3, shape) if "bias" not in name else np.zeros(shape) for name, shape in shapes.items()
    }
    first = {name: np.zeros(shape) for name, shape in shapes.items()}
    second = {name: np.zeros(shape) for name, shape in shapes.items()}
    for step in range(1, STEPS + 1):
        for name, gradient in _gradients(found, rows, labels, weights / weights.sum()).items():
            if "bias" not in name:
                gradient = gradient + DECAY * found[name]
            first[name] = 0.9 * first[name] + 0.1 * gradient
            second[name] = 0.999 * second[name] + 0.001 * gradient**2
            step_size = RATE * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
            found[name] = found[name] - step_size * first[name] / (np.sqrt(second[name]) + 1e-8)
    return found


def _gradients(found: dict[str, Array], rows: Array, labels: Array, weights: Array) -> dict[str, Array]:
    hidden = np.tanh(rows @ found["hidden"] + found["hidden_bias"])
    error = (1 / (1 + np.exp(-(hidden @ found["out"] + found["out_bias"]))) - labels) * weights
    back = np.outer(error, found["out"]) * (1 - hidden**2)
    return {
        "hidden": rows.T @ back,
        "hidden_bias": back.sum(axis=0),
        "out": hidden.T @ error,
        "out_bias": np.asarray(error.sum()),
    }


def fit(taught: Table) -> dict[str, object]:
    """The content of the weights file."""
    mean, scale = taught.rows.mean(axis=0), np.maximum(taught.rows.std(axis=0), 0.05)
    members = [train((taught.rows - mean) / scale, taught.labels, taught.weights, seed) for seed in range(MEMBERS)]
    stacked = {name: np.round([member[name] for member in members], 4).tolist() for name in members[0]}
    return {
        "names": list(NAMES),
        "mean": np.round(mean, 5).tolist(),
        "scale": np.round(scale, 5).tolist(),
        **stacked,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--open", type=Path, required=True, help="folder with SOURCE_pairs.jsonl and own_edits.jsonl")
    parser.add_argument("--pairs", type=Path, action="append", default=[], help="JSONL with `a`, `b`, `label`")
    parser.add_argument("--vectors", type=Path, help="NPZ that keeps the texts' vectors between two runs")
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    options = parser.parse_args()
    vectors = Vectors(options.vectors)
    pairs = [*open_pairs(options.open), *own_pairs(), *labelled_pairs(options.pairs), *framed_pairs()]
    vectors.add(text for pair in pairs for text in (pair.stored, pair.asked))
    options.out.write_bytes(orjson.dumps(fit(table(pairs, vectors))))


if __name__ == "__main__":
    main()
