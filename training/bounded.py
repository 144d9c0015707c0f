"""Does the share of wrong hits stay below `max_error`? On streams whose truth is known by how they are made.

Three kinds: questions to offices, commands to a home, and open questions with their edits by rule. Each is asked in
random order, with repetitions, from a cold start. The served thresholds and verifier decide, with and without
promotion; a check finds the truth. A file of natural questions is asked in its order; its labels are the truth.

`python -m training.bounded --edits own_edits.jsonl [--natural FILE] [--vectors FILE]`
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import NamedTuple

import click
import orjson

from gateway.cache.quality.answer_judge import Judgement
from gateway.cache.quality.error_bound import LEVELS
from gateway.cache.quality.promotions import Promotions
from gateway.cache.quality.threshold import Thresholds
from gateway.cache.semantic.partitions import CANDIDATES
from gateway.cache.verifier.verify import Scorer
from loadtests.drift import ASPECTS, SERVICES, TOWNS
from training.streams import Asked, Score, Stream, quora, scored
from training.vectors import Vectors

REQUESTS, SEEDS, MAX_ERROR = 3000, 5, 0.01
_SCOPE = "s"
_HOME = {
    "on": ("turn on the {0} in the {1}", "switch the {0} in the {1} on", "{1} {0} on please"),
    "off": ("turn off the {0} in the {1}", "switch the {0} in the {1} off", "{1} {0} off please"),
    "state": ("is the {0} in the {1} on?", "check whether the {0} in the {1} is on", "is the {1} {0} on"),
    "half": ("set the {0} in the {1} to 50 percent", "put the {1} {0} at 50 percent", "{0} in the {1} to 50%"),
    "full": ("set the {0} in the {1} to 100 percent", "put the {1} {0} at 100 percent", "{0} in the {1} to 100%"),
}
_THINGS = ("lamp", "heater", "fan", "television", "radio", "humidifier", "speaker", "blind", "ceiling light", "boiler")
_ROOMS = ("kitchen", "bedroom", "bathroom", "garage", "hallway", "living room", "attic", "cellar", "office", "garden")


class Outcome(NamedTuple):
    hits: int
    wrong: int
    lookups: int


def framed(frames: Mapping[str, tuple[str, ...]], one: tuple[str, ...], other: tuple[str, ...]) -> list[Asked]:
    return [
        Asked(wording.format(first, second), f"{matter}/{first}/{second}")
        for (matter, wordings), first, second in product(frames.items(), one, other)
        for wording in wordings
    ]


def edited(path: Path) -> Iterator[Asked]:
    """Each question is asked as it was, and edited; the edits that change its answer are questions of their own."""
    for line in path.read_bytes().splitlines():
        row = orjson.loads(line)
        yield Asked(row["a"], row["a"])
        yield Asked(row["b"], row["a"] if row["label"] else row["b"])


def drawn(pool: list[Asked], seed: int, requests: int) -> list[Asked]:
    """A third of the pool at most, some often and most seldom."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, no secret
    clusters = sorted({asked.cluster for asked in pool})
    wanted = set(chance.sample(clusters, min(len(clusters), requests // 4)))
    some = [asked for asked in pool if asked.cluster in wanted]
    return [some[int(len(some) * chance.random() ** 2)] for _ in range(requests)]


class Replay:
    """Replays a stream with the served thresholds, from a cold start. Without `promotions`, near misses confirm
    nothing."""

    def __init__(self, stream: Stream, score: Score, seed: int, promotions: Promotions | None) -> None:
        self._stream, self._score, self._promotions = stream, score, promotions
        chance = random.Random(seed)  # noqa: S311 - repeatable, no secret
        self._thresholds = Thresholds(draw=chance.random)
        self._stored: set[int] = set()

    def follow(self) -> Outcome:
        texts: set[str] = set()
        hits = wrong = lookups = 0
        for place, asked in enumerate(self._stream.questions):
            if asked.text in texts:
                continue  # an exact hit
            lookups += 1
            hit, differs = self._ask(place)
            hits, wrong = hits + hit, wrong + (hit and differs)
            if not hit:
                texts.add(asked.text)
        return Outcome(hits, wrong, lookups)

    def _ask(self, place: int) -> tuple[bool, bool]:
        """Whether it is a hit, and whether the best candidate has another answer."""
        questions, asked = self._stream.questions, self._stream.questions[place]
        near = [each for each in self._stream.near[place] if each[0] in self._stored][:CANDIDATES]
        among = len(self._stored)
        ranked = [(self._score(questions[other].text, asked.text, cosine, among), other) for other, cosine in near]
        if self._promotions is not None:
            self._promotions.looked(_SCOPE)
        bar = self._thresholds.bar(_SCOPE, MAX_ERROR)
        given = next(((certainty, other) for certainty, other in ranked if certainty >= bar), None)
        certainty, other = given or max(ranked, default=(0.0, -1))
        accepted, digest = certainty >= LEVELS[0], str(other).encode()
        promoted = given is None and accepted and self._promoted(digest, certainty)
        hit = given is not None or promoted
        self._thresholds.looked(_SCOPE, certainty if accepted else None, hit=hit)
        differs = other >= 0 and questions[other].cluster != asked.cluster
        judgement = Judgement.WRONG if differs else Judgement.RIGHT
        if not hit:
            self._stored.add(place)
            if accepted:
                self._thresholds.missed(_SCOPE, certainty, judgement, accepted=True)
                if self._promotions is not None:
                    self._promotions.judged(_SCOPE, (digest, str(place).encode()), certainty, right=not differs)
        elif probability := self._thresholds.draw(_SCOPE):
            self._thresholds.checked(_SCOPE, certainty, judgement, probability=probability)
            if promoted and self._promotions is not None:
                self._promotions.checked(_SCOPE, digest, wrong=differs)
        return hit, differs

    def _promoted(self, digest: bytes, certainty: float) -> bool:
        if self._promotions is None or not self._promotions.promoted(_SCOPE, digest, certainty, MAX_ERROR):
            return False
        self._promotions.gave(_SCOPE)
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edits", type=Path, required=True, help="JSONL: `a`, `b`, `label`")
    parser.add_argument("--natural", type=Path, help="JSONL: `text`, `cluster`")
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    options = parser.parse_args()
    vectors, score = Vectors(options.vectors), scored(Scorer.load())
    aspects = {name: tuple(wordings) for name, wordings in ASPECTS.items()}
    pools = {
        "offices": framed(aspects, SERVICES, TOWNS),
        "home": framed(_HOME, _THINGS, _ROOMS),
        "edits": list(edited(options.edits)),
    }
    for seed in range(SEEDS):
        for name, pool in pools.items():
            _tell(name, Stream(drawn(pool, seed, options.requests), vectors), score, seed)
    if options.natural:
        stream = Stream(quora(options.natural), vectors)
        for seed in range(SEEDS):
            _tell("natural", stream, score, seed)


def _tell(name: str, stream: Stream, score: Score, seed: int) -> None:
    before = Replay(stream, score, seed, None).follow()
    found = Replay(stream, score, seed, Promotions()).follow()
    above = "above" if found.wrong > MAX_ERROR * found.lookups else "below"
    click.echo(
        f"{name}, seed {seed}: {found.wrong} wrong of {found.hits} hits, {found.lookups}: {above}; "
        f"without promotion {before.wrong} of {before.hits}, {before.lookups}"
    )


if __name__ == "__main__":
    main()
