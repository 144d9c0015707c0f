"""Does the share of wrong hits stay below `max_error`? On streams whose truth is known by how they are made.

Three kinds: questions to offices, commands to a home, and open questions with their edits by rule. Each is asked in
random order, with repetitions, from a cold start. The served thresholds and verifier decide; a check finds the truth.

`python -m training.bounded --edits own_edits.jsonl [--vectors FILE]`
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
from gateway.cache.quality.threshold import Thresholds
from gateway.cache.semantic.partitions import CANDIDATES
from gateway.cache.verifier.verify import Scorer
from loadtests.drift import ASPECTS, SERVICES, TOWNS
from training.streams import Asked, Score, Stream, scored
from training.vectors import Vectors

LOOKUPS, SEEDS, MAX_ERROR = 3000, 5, 0.01
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


def drawn(pool: list[Asked], seed: int) -> list[Asked]:
    """A third of the pool at most, some often and most seldom."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, no secret
    clusters = sorted({asked.cluster for asked in pool})
    wanted = set(chance.sample(clusters, min(len(clusters), LOOKUPS // 4)))
    some = [asked for asked in pool if asked.cluster in wanted]
    return [some[int(len(some) * chance.random() ** 2)] for _ in range(LOOKUPS)]


def follow(stream: Stream, score: Score, seed: int) -> Outcome:
    """Replay at the threshold that the checks allow."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, no secret
    thresholds = Thresholds(draw=chance.random)
    stored: set[int] = set()
    texts: set[str] = set()
    hits = wrong = lookups = 0
    for place, asked in enumerate(stream.questions):
        if asked.text in texts:
            continue  # an exact hit
        lookups += 1
        near = [each for each in stream.near[place] if each[0] in stored][:CANDIDATES]
        ranked = [
            (score(stream.questions[other].text, asked.text, cosine, len(stored)), other) for other, cosine in near
        ]
        bar = thresholds.bar("s", MAX_ERROR)
        given = next(((certainty, other) for certainty, other in ranked if certainty >= bar), None)
        best = given or max(ranked, default=(0.0, -1))
        accepted = best[0] >= LEVELS[0]
        thresholds.looked("s", best[0] if accepted else None, hit=given is not None)
        differs = best[1] >= 0 and stream.questions[best[1]].cluster != asked.cluster
        judgement = Judgement.WRONG if differs else Judgement.RIGHT
        if given is None:
            stored.add(place)
            texts.add(asked.text)
            if accepted:
                thresholds.missed("s", best[0], judgement, accepted=True)
            continue
        hits, wrong = hits + 1, wrong + differs
        if probability := thresholds.draw("s"):
            thresholds.checked("s", given[0], judgement, probability=probability)
    return Outcome(hits, wrong, lookups)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edits", type=Path, required=True, help="JSONL: `a`, `b`, `label`")
    parser.add_argument("--vectors", type=Path)
    options = parser.parse_args()
    vectors, score = Vectors(options.vectors), scored(Scorer.load())
    aspects = {name: tuple(wordings) for name, wordings in ASPECTS.items()}
    pools = {
        "offices": framed(aspects, SERVICES, TOWNS),
        "home": framed(_HOME, _THINGS, _ROOMS),
        "edits": list(edited(options.edits)),
    }
    for name, pool in pools.items():
        for seed in range(SEEDS):
            found = follow(Stream(drawn(pool, seed), vectors), score, seed)
            above = "above" if found.wrong > MAX_ERROR * found.lookups else "below"
            click.echo(f"{name}, seed {seed}: {found.wrong} wrong of {found.hits} hits, {found.lookups}: {above}")


if __name__ == "__main__":
    main()
