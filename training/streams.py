"""Judges the semantic cache on streams of questions: thresholds chosen on one half of the clusters, reported on the
other.

Two streams. Quora questions: only scalar thresholds may be chosen on them. Open questions (`SOURCES`): the networks are
fitted on pairs of one half, and the threshold is chosen on it; the other half is reported. Each question is stored
unless it hit, and a hit is right if the stored question is of the same cluster.

`python -m training.streams --quora FILE --open FOLDER --vectors FILE [--pairs FILE …]`
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
import orjson
from numpy.typing import NDArray

from gateway.cache.quality.error_bound import LEVELS
from gateway.cache.semantic.partitions import CANDIDATES, LEAST_COSINE
from gateway.cache.verifier.lexicon import Words, load_words
from gateway.cache.verifier.verify import Scorer, Verifier, crowded
from training.interchangeable import mined, with_lists
from training.vectors import Vectors
from training.verifier import Pair, fit, framed_pairs, half_of, labelled_pairs, open_pairs, own_pairs, table

SOURCES = {
    "advising": 900,
    "clinc150": 500,
    "covidfaq": 300,
    "pira": 1400,
    "rqe": 700,
    "simplequestions": 700,
    "sqframes": 900,
    "webquestions": 800,
}
"""Source → most questions of it. Clusters of the others are intents, or depend on what is at home."""
MOST_OF_CLUSTER = 5
TARGETS = (0.012, 0.011, 0.008, 0.005)
BARS = (0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
COLD = 0.4
"""The threshold of a new scope at 1 %."""
GROWTH = (0.17, 0.5, 1.0, 3.5)
"""Times the questions of `SOURCES`: about 1,000 to 20,000."""
_RESAMPLES = 300
_NEAREST = 48
"""Earlier questions, stored or not, that a replay chooses its candidates from."""

Score = Callable[[str, str, float, int], float]
"""Of a stored question, one that is asked, their cosine, and the number of stored questions."""


class Asked(NamedTuple):
    text: str
    cluster: str


class Tally(NamedTuple):
    """Shares of look-ups, with 95 % intervals from resampled clusters."""

    hits: float
    wrong: float
    hits_interval: tuple[float, float]
    wrong_interval: tuple[float, float]


class Stream:
    """Replays questions in order; remembers what the verifier made of each pair."""

    def __init__(self, questions: Sequence[Asked], vectors: Vectors) -> None:
        self.questions = questions
        self.halves = np.array([half_of(question.cluster) for question in questions])
        vectors.add(question.text for question in questions)
        self.near = list(_neighbours(np.array([vectors(question.text) for question in questions])))
        self._places = {cluster: place for place, cluster in enumerate({question.cluster for question in questions})}

    def replay(self, score: Score, bar: float) -> NDArray[np.int64]:
        """For each question, the place of the one whose answer it gets; -1: it is stored."""
        stored = np.zeros(len(self.questions), dtype=np.bool_)
        found = np.full(len(self.questions), -1)
        kept = 0
        for place, question in enumerate(self.questions):
            near = [each for each in self.near[place] if stored[each[0]]]
            for other, cosine in near[:CANDIDATES]:
                if score(self.questions[other].text, question.text, cosine, kept) >= bar:
                    found[place] = other
                    break
            else:
                stored[place] = True
                kept += 1
        return found

    def wrong(self, found: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.array(
            [
                other >= 0 and self.questions[other].cluster != question.cluster
                for other, question in zip(found, self.questions, strict=True)
            ]
        )

    def shares(self, found: NDArray[np.int64], half: int | None = None) -> tuple[float, float]:
        """Hits and wrong hits, of the look-ups of one half or of all."""
        kept = self.halves >= 0 if half is None else self.halves == half
        return float((found[kept] >= 0).mean()), float(self.wrong(found)[kept].mean())

    def tally(self, found: NDArray[np.int64], half: int | None = None) -> Tally:
        kept = self.halves >= 0 if half is None else self.halves == half
        clusters = np.array([self._places[question.cluster] for question in self.questions])[kept]
        columns = np.stack([np.ones(kept.sum()), found[kept] >= 0, self.wrong(found)[kept]], axis=1)
        sums = np.zeros((len(self._places), 3))
        np.add.at(sums, clusters, columns)
        sums = sums[sums[:, 0] > 0]
        chance = np.random.default_rng(0)
        drawn = [sums[chance.integers(0, len(sums), len(sums))].sum(axis=0) for _ in range(_RESAMPLES)]
        (hits_low, wrong_low), (hits_high, wrong_high) = np.quantile(
            [each[1:] / each[0] for each in drawn], (0.025, 0.975), axis=0
        ).tolist()
        return Tally(*self.shares(found, half), (hits_low, hits_high), (wrong_low, wrong_high))


def _neighbours(vectors: NDArray[np.float32]) -> Iterator[list[tuple[int, float]]]:
    """Of each question, the nearest earlier ones: place and cosine, the nearest first."""
    for place, vector in enumerate(vectors):
        cosines = vectors[:place] @ vector
        nearest = np.argpartition(-cosines, _NEAREST)[:_NEAREST] if place > _NEAREST else np.arange(place)
        ranked = nearest[np.argsort(-cosines[nearest])]
        yield [(int(other), float(cosines[other])) for other in ranked if cosines[other] >= LEAST_COSINE]


Replays = dict[float, NDArray[np.int64]]


def nested(stream: Stream, replays: Sequence[Replays], target: float) -> Iterator[tuple[int, float, Tally]]:
    """Half, bar chosen on the other half (most hits at no more than `target` wrong), and what it gives on this one.
    `replays`: by bar, of the model that each half may be judged with."""
    for half in (0, 1):
        shares = {bar: stream.shares(found, 1 - half) for bar, found in replays[half].items()}
        allowed = [(hits, bar) for bar, (hits, wrong) in shares.items() if wrong <= target]
        if allowed:
            bar = max(allowed)[1]
            yield half, bar, stream.tally(replays[half][bar], half)


def quora(path: Path) -> list[Asked]:
    rows = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    return [Asked(row["text"], str(row["cluster"])) for row in rows]


def opened(folder: Path, times: float = 1.0) -> list[Asked]:
    """`times`: as many questions of each source as `SOURCES` says."""
    chance = random.Random(0)  # noqa: S311 - repeatable, no secret
    clusters: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for line in (folder / "texts.jsonl").read_bytes().splitlines():
        row = orjson.loads(line)
        clusters[row["source"]][row["cluster"]].append(row["text"])
    asked = []
    for source, most in SOURCES.items():
        names, count = sorted(clusters[source]), 0
        chance.shuffle(names)
        for name in names:
            if count >= most * times:
                break
            texts = clusters[source][name]
            chance.shuffle(texts)
            asked += [Asked(text, name) for text in texts[:MOST_OF_CLUSTER]]
            count += len(texts[:MOST_OF_CLUSTER])
    chance.shuffle(asked)
    return asked


def scored(scorer: Scorer, words: Words | None = None) -> Score:
    """The verifier's score with these networks; each pair is compared once."""
    verifier, known = Verifier(words or load_words(), scorer), dict[tuple[str, str], tuple[float, bool]]()

    def score(stored: str, asked: str, cosine: float, among: int) -> float:
        if (stored, asked) not in known:
            verdict = verifier.verify(stored, asked, cosine)
            known[stored, asked] = verdict.score, verdict.reason == "same"
        probability, same = known[stored, asked]
        return probability if same else crowded(probability, among)

    return score


def judged_on(half: int, folder: Path, pairs: Sequence[Pair], vectors: Vectors) -> Score:
    """The score of words and networks that were found without this half of the open clusters."""
    words = with_lists(mined(folder, without=half))
    taught = table(pairs, vectors, words).without(half)
    return scored(Scorer(orjson.loads(orjson.dumps(fit(taught)))), words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quora", type=Path, required=True, help="JSONL: `text`, `cluster`")
    parser.add_argument("--open", type=Path, required=True)
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--pairs", type=Path, action="append", default=[])
    options = parser.parse_args()
    vectors = Vectors(options.vectors)
    pairs = [*open_pairs(options.open), *own_pairs(), *labelled_pairs(options.pairs), *framed_pairs()]
    halves = [judged_on(half, options.open, pairs, vectors) for half in (0, 1)]
    packaged = scored(Scorer.load())
    for name, asked, models in (
        ("quora", quora(options.quora), [packaged]),
        ("open", opened(options.open), halves),
    ):
        stream = Stream(asked, vectors)
        replays = [{bar: stream.replay(model, bar) for bar in BARS} for model in models]
        for target in TARGETS:
            for half, bar, tally in nested(stream, replays * (2 // len(replays)), target):
                _tell(name, len(asked), f"at most {target} on the other half", half, bar, tally)
    for times in GROWTH:
        stream = Stream(opened(options.open, times), vectors)
        for bar in (LEVELS[0], COLD):
            for half in (0, 1):
                tally = stream.tally(stream.replay(halves[half], bar), half)
                _tell("growth", len(stream.questions), "fixed", half, bar, tally)


def _tell(stream: str, questions: int, what: str, half: int, bar: float, tally: Tally) -> None:
    shares = [f"{share:.4f} [{low:.4f}, {high:.4f}]" for share, (low, high) in zip(tally[:2], tally[2:], strict=True)]
    click.echo(f"{stream}, {questions} questions, {what}, half {half}: bar {bar}, hits {shares[0]}, wrong {shares[1]}")


if __name__ == "__main__":
    main()
