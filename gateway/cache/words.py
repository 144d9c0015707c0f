"""The word lists of `data/words.json`, one lexicon per language, and the embedder's vocabulary as a dictionary."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

_DATA = Path(__file__).parent / "data"

LANGUAGES = ("en", "es", "pt")
_SETS = ("thanks", "particles", "towards", "away", "mild", "personal", "closed")


@dataclass(frozen=True, slots=True)
class Lexicon:
    """What one language calls things; all words without accents, lower case."""

    stopwords: frozenset[str]
    negations: frozenset[str]
    questions: dict[str, str]
    """Question word → its class (how, what, why …)."""
    function: frozenset[str]
    modals: frozenset[str]
    courtesy: frozenset[str]
    expand: dict[str, tuple[str, ...]]
    """Contraction or abbreviation → the words it stands for."""
    numbers: dict[str, str]
    """Number word → digits."""
    temporal: frozenset[str]


@dataclass(frozen=True, slots=True)
class Words:
    lexicons: dict[str, Lexicon]
    synonyms: dict[str, str]
    """Word → the first word of its group."""
    opposites: dict[str, frozenset[str]]
    thanks: frozenset[str]
    """What makes a few last words a courtesy."""
    particles: frozenset[str]
    """Prepositions and conjunctions that a paraphrase rarely exchanges."""
    towards: frozenset[str]
    away: frozenset[str]
    """What stands before a goal, and before an origin."""
    mild: frozenset[str]
    """Prepositions that may stand for one another."""
    personal: frozenset[str]
    closed: frozenset[str]
    """Units, months, weekdays, languages, shapes of an answer: never interchangeable."""
    vocabulary: dict[str, int]
    """Whole words that the embedder knows → rank, frequent first; tells a typo from another word."""


def _lexicon(name: str, data: dict[str, Any]) -> Lexicon:
    own = data[name]
    return Lexicon(
        stopwords=frozenset(own["stopwords"].split()),
        negations=frozenset(own["negations"].split()),
        questions={word: kind for kind, words in own["questions"].items() for word in words.split()},
        function=frozenset(own["function"].split()),
        modals=frozenset(own["modals"].split()),
        courtesy=frozenset(own["courtesy"].split()),
        expand={short: tuple(full.split()) for short, full in own["expand"].items()},
        numbers={word: str(value) for word, value in own["numbers"].items()},
        temporal=frozenset(data["temporal"][name].split()),
    )


def _opposites(groups: list[str]) -> dict[str, frozenset[str]]:
    """`"buy/sell bought/sold"`-like entries: each side of a slash is the other's opposite."""
    found: dict[str, set[str]] = {}
    for group in groups:
        sides = [side.split() for side in group.split("/")]
        for number, side in enumerate(sides):
            others = {word for place, words in enumerate(sides) if place != number for word in words}
            for word in side:
                found.setdefault(word, set()).update(others)
    return {word: frozenset(others) for word, others in found.items()}


@lru_cache(maxsize=1)
def load_words() -> Words:
    """Read once; about 30 ms, so call it off the loop the first time."""
    data = orjson.loads((_DATA / "words.json").read_bytes())
    tokens: dict[str, int] = orjson.loads((_DATA / "tokenizer.json").read_bytes())["model"]["vocab"]
    return Words(
        lexicons={name: _lexicon(name, data) for name in LANGUAGES},
        synonyms={word: group.split()[0] for group in data["synonyms"] for word in group.split()},
        opposites=_opposites(data["opposites"]),
        **{name: frozenset(data[name].split()) for name in _SETS},
        vocabulary={token: rank for token, rank in tokens.items() if token.isalpha() and len(token) > 1},
    )
