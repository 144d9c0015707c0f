"""Loads the verifier's learned data and its word lists. The lists are in `data/words.json` (some 200 words for each
language) and `data/varying.json`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from gateway.cache.verifier.politeness import Politeness
from gateway.cache.verifier.vocabulary import Vocabulary

WORDS = Path(__file__).parents[1] / "data" / "words.json"
VARYING = WORDS.with_name("varying.json")
INTERCHANGEABLE = WORDS.with_name("interchangeable.json")

LANGUAGES = ("en", "es", "pt")


@dataclass(frozen=True, slots=True)
class Lexicon:
    """The word lists of one language. All words are in lower case and without accents."""

    function: frozenset[str]
    """Articles, auxiliaries, pronouns and weak prepositions. Adding or removing one of these words does not change the
    answer."""
    prepositions: frozenset[str]
    """Prepositions. A phrase that begins with one of them may be at another position in the sentence."""
    past: frozenset[str]
    negations: frozenset[str]
    questions: dict[str, str]
    """Question word → its class (how, what, why …)."""
    modals: frozenset[str]
    varying: re.Pattern[str]
    """Matches phrases in questions whose answer depends on the time or on chance, or that ask for something new."""
    one: frozenset[str]
    """Words that mean the digit 1 only in some texts, because they usually have another meaning."""
    numbers: dict[str, int]
    short: dict[str, str]
    """Abbreviation → the word that it stands for."""
    same: dict[str, str]
    """Word → the first word of its group of equivalent words. A group contains regional words, or formal and informal
    imperatives."""
    irregular: dict[str, str]
    """Past form of an irregular English verb → its infinitive."""
    opposites: dict[str, frozenset[str]]
    """Word → the words with the opposite meaning."""
    contrasts: frozenset[tuple[str, str]]
    """Pairs of words, each pair in alphabetical order. Most of them are function words. If the two words replace each
    other, and nothing else differs, the answers differ."""
    interchangeable: frozenset[tuple[str, str]] = frozenset()
    """Pairs of words, each pair in alphabetical order. The two words were seen to replace each other in questions with
    the same answer."""


@dataclass(frozen=True, slots=True)
class Words:
    lexicons: dict[str, Lexicon]
    vocabulary: Vocabulary
    courtesy: Politeness

    def without_lists(self) -> Words:
        """The learned data without the word lists."""
        empty: dict[str, Any] = {field.name: frozenset() for field in fields(Lexicon)}
        empty["varying"] = _phrases(())
        empty |= {name: {} for name in ("questions", "numbers", "short", "same", "irregular", "opposites")}
        return replace(self, lexicons={name: Lexicon(**empty) for name in LANGUAGES})


def _lexicon(name: str, own: dict[str, Any], varying: dict[str, str], pairs: list[str]) -> Lexicon:
    def words(kind: str) -> frozenset[str]:
        listed = frozenset(own[kind].split())
        # The stem `lo` also matches `los`.
        return listed if name == "en" else listed | {f"{word}s" for word in listed}

    kinds = {word: kind for kind, group in own["questions"].items() for word in group.split()}
    if name != "en":
        kinds |= {f"{word}s": kind for word, kind in kinds.items()}
    return Lexicon(
        **{kind: words(kind) for kind in ("function", "past", "modals")},
        varying=_phrases(varying.values()),
        prepositions=frozenset(own["prepositions"].split()),
        negations=frozenset(own["negations"].split()),
        one=frozenset(own["one"].split()),
        questions=kinds,
        numbers={**own["numbers"], **_teens(name, own["numbers"], own["stems"])},
        short=own["short"],
        same={word: group.split()[0] for group in own["same"] for word in group.split()},
        irregular={form: group.split()[0] for group in own.get("irregular", ()) for form in group.split()[1:]},
        opposites=_opposites(own["opposites"]),
        contrasts=_pairs(own["contrasts"] + [pair.replace(" ", "s ") + "s" for pair in own["contrasts"]]),
        interchangeable=_pairs(pairs),
    )


def _pairs(lines: list[str]) -> frozenset[tuple[str, str]]:
    return frozenset((min(pair), max(pair)) for pair in map(str.split, lines))


def _phrases(lists: Iterable[str]) -> re.Pattern[str]:
    """A pattern that matches any of the phrases. Without phrases, it matches nothing.

    In the lists, `right_now` means these words in sequence, and `poem*` a word that begins with `poem`.
    """
    escaped = re.escape("|".join("|".join(each.split()) for each in lists))
    phrases = escaped.replace(r"\|", "|").replace("_", r"\W+").replace(r"\*", r"\w*")
    return re.compile(rf"\b(?:{phrases})\b" if phrases else "(?!)")


def _opposites(pairs: list[str]) -> dict[str, frozenset[str]]:
    """Word → the words with the opposite meaning. In the lists, `on | off` has words of one meaning on each side."""
    found: dict[str, frozenset[str]] = {}
    for pair in pairs:
        one, other = (frozenset(side.split()) for side in pair.split("|"))
        for words, contrary in ((one, other), (other, one)):
            for word in words:
                found[word] = found.get(word, frozenset()) | contrary
    return found


def _teens(name: str, units: dict[str, int], stems: dict[str, int]) -> dict[str, int]:
    """Name → number, for numbers whose names follow the rules of a language, such as `fourteen`, `forty`, `dieciseis`,
    `veintidos`."""
    small = {word: value for word, value in {**units, **stems}.items() if value < 10}
    if name == "en":
        teens = {f"{word}teen": 10 + value for word, value in small.items() if value > 2}
        return teens | {f"{word}ty": 10 * value for word, value in small.items()}
    if name == "es":
        teens = {f"dieci{word}": 10 + value for word, value in small.items() if value > 5}
        return teens | {f"veinti{word}": 20 + value for word, value in small.items()}
    return {}


@lru_cache(maxsize=1)
def load_words() -> Words:
    """Load the word lists and the learned data. The first call takes 100 ms, so do not call it on the event loop."""
    data = orjson.loads(WORDS.read_bytes())
    varying = orjson.loads(VARYING.read_bytes())
    pairs = orjson.loads(INTERCHANGEABLE.read_bytes())
    lexicons = {name: _lexicon(name, data[name], varying[name], pairs[name]) for name in LANGUAGES}
    return Words(lexicons, Vocabulary.load(), Politeness.load())
