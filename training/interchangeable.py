"""Finds pairs of words that are exchanged in questions with the same answer (`film`, `movie`), and writes them as JSON.

Two texts of one open cluster that differ in one word on each side show that the two words are interchangeable; a pair
with label 0 shows the contrary. A pair of words counts if it occurs in `LEAST` clusters and seldom with another answer.

`python -m training.interchangeable --open FOLDER` (`texts.jsonl`, `SOURCE_pairs.jsonl`, `own_edits.jsonl`).
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import orjson

from gateway.cache.verifier.lexicon import INTERCHANGEABLE, LANGUAGES, Lexicon, Words, load_words
from gateway.cache.verifier.verify import Verifier
from training.verifier import Pair, half_of, open_pairs

LEAST = 2
"""Minimum clusters in which the two words were exchanged."""
MOST_WRONG = 1 / 3
"""Maximum pairs with another answer per such cluster."""
COARSE = frozenset({"banking77", "medquad", "homeassistant"})
"""Sources whose clusters are intents, or depend on what is at home."""
MOST_OF_CLUSTER = 8
REFUSED = frozenset(
    {
        *("argentina norway", "father mother", "father parent", "mother parent", "the william", "dar prestar"),
        *("artist band", "bathroom toilet", "belief religion", "brothers siblings", "canonical original"),
        *("class course", "classes courses", "clock watch", "composed wrote", "created wrote", "did wrote"),
        *("follow have", "format type", "game videogame", "genre program", "get go", "good ok", "in on"),
        *("lyrics song", "mad nuts", "piece song", "program show", "recorded released", "recording song"),
        *("school university", "amiga amigo", "chicas niñas", "de sober", "deja para", "diario periodico"),
        *("eres es", "tarta torta", "do no", "maiores principais"),
    }
)
"""Pairs that the texts show and that a reader refused."""


class Exchange(NamedTuple):
    language: str
    words: tuple[str, str]
    where: str
    """The cluster, or the pair, that shows it."""
    same: bool


Lists = dict[str, list[str]]


def clustered(folder: Path, *, without: int | None = None) -> Iterator[tuple[str, str, str]]:
    """Two texts of one cluster, and its name. `without`: leaves out the clusters of this half."""
    clusters: dict[str, list[str]] = defaultdict(list)
    for line in (folder / "texts.jsonl").read_bytes().splitlines():
        row = orjson.loads(line)
        if row["source"] not in COARSE and (without is None or half_of(row["cluster"]) != without):
            clusters[row["cluster"]].append(row["text"])
    for name, texts in clusters.items():
        yield from ((left, right, name) for left, right in combinations(sorted(set(texts))[:MOST_OF_CLUSTER], 2))


class Finder:
    def __init__(self) -> None:
        self._lexicons = load_words().lexicons
        self._verifier = Verifier(load_words(), None)

    def exchanges(self, rows: Iterable[tuple[str, str, str]], *, same: bool) -> Iterator[Exchange]:
        for left, right, where in rows:
            stored, asked, compared = self._verifier.compared(left, right)
            language = stored.language or asked.language
            one, other = compared.unmatched
            if not language or len(one) != 1 or len(other) != 1 or "opposite" in compared.signs:
                continue
            together = any(
                one[0] in {token.form for token in gap.stored} and other[0] in {token.form for token in gap.asked}
                for gap in compared.gaps
            )
            if together and all(_common(word, self._lexicons[language]) for word in one + other):
                yield Exchange(language, (min(one + other), max(one + other)), where, same)


def _common(word: str, lexicon: Lexicon) -> bool:
    return word.isalpha() and word not in lexicon.negations and word not in lexicon.questions


def lists(found: Iterable[Exchange]) -> Lists:
    """Language → pairs of words, in alphabetical order."""
    right: dict[tuple[str, tuple[str, str]], set[str]] = defaultdict(set)
    wrong: dict[tuple[str, tuple[str, str]], set[str]] = defaultdict(set)
    for language, words, where, same in found:
        (right if same else wrong)[language, words].add(where)
    kept = {
        name
        for name, where in right.items()
        if len(where) >= LEAST and len(wrong[name]) <= MOST_WRONG * len(where) and " ".join(name[1]) not in REFUSED
    }
    return {each: sorted(" ".join(words) for language, words in kept if language == each) for each in LANGUAGES}


def mined(folder: Path, *, without: int | None = None) -> Lists:
    """The pairs of words that the open texts show. `without`: uses no text of this half of the clusters."""
    finder = Finder()
    pairs: list[Pair] = [pair for pair in open_pairs(folder) if not pair.label and pair.half != without]
    return lists(
        [
            *finder.exchanges(clustered(folder, without=without), same=True),
            *finder.exchanges(((pair.stored, pair.asked, pair.asked) for pair in pairs), same=False),
        ]
    )


def with_lists(found: Lists) -> Words:
    """The packaged words, with these pairs instead of the packaged ones."""
    words = load_words()
    lexicons = {
        name: replace(lexicon, interchangeable=frozenset((one, other) for one, other in map(str.split, found[name])))
        for name, lexicon in words.lexicons.items()
    }
    return replace(words, lexicons=lexicons)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--open", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=INTERCHANGEABLE)
    options = parser.parse_args()
    options.out.write_bytes(orjson.dumps(mined(options.open), option=orjson.OPT_INDENT_2) + b"\n")


if __name__ == "__main__":
    main()
