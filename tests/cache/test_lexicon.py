from __future__ import annotations

from typing import Any

import orjson
import pytest

import gateway.cache.verifier.lexicon as module
from gateway.cache.verifier.lexicon import LANGUAGES, load_words
from gateway.cache.verifier.text import plain

MOST_ENTRIES = 230
LISTS: dict[str, dict[str, Any]] = orjson.loads(module.WORDS.read_bytes())


def entries(kind: str, value: Any) -> int:
    """Words of a list, keys of a table; question words are listed by class."""
    if isinstance(value, str):
        return len(value.split())
    if kind in ("questions", "same", "opposites"):
        return sum(
            len(group.replace("|", "").split()) for group in (value.values() if isinstance(value, dict) else value)
        )
    return len(value)


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_language_has_more_than_some_two_hundred_words_of_its_own(language: str) -> None:
    assert sum(entries(kind, value) for kind, value in LISTS[language].items()) <= MOST_ENTRIES


def test_all_words_are_as_texts_are_read_lower_case_and_without_accents() -> None:
    for lexicon in load_words().lexicons.values():
        groups = (lexicon.function, lexicon.negations, lexicon.questions, lexicon.modals, lexicon.opposites)
        assert all(word == plain(word.lower()) for group in groups for word in group)


def test_a_negation_is_never_harmless() -> None:
    for lexicon in load_words().lexicons.values():
        assert not lexicon.negations & (lexicon.function | lexicon.modals)


def test_numbers_are_built_as_the_language_builds_them() -> None:
    lexicons = load_words().lexicons
    assert [lexicons["en"].numbers[word] for word in ("fourteen", "fifteen", "forty", "eighty")] == [14, 15, 40, 80]
    assert [lexicons["es"].numbers[word] for word in ("dieciseis", "veintidos")] == [16, 22]


def test_the_lists_can_be_left_out() -> None:
    for lexicon in load_words().without_lists().lexicons.values():
        assert not any((lexicon.function, lexicon.negations, lexicon.questions, lexicon.numbers))
