"""Recognises two spellings or numbers (singular, plural) of one word."""

from __future__ import annotations

import re
from functools import lru_cache

from gateway.cache.verifier.text import Token
from gateway.cache.verifier.vocabulary import Vocabulary

_CLUSTER = re.compile(r"[^aeiou]{3}")
"""Where a vowel has dropped out."""
_THOROUGH = ("en",)
"""Languages of which the vocabulary knows most words, so that what it does not know is mostly misspelt."""
_SHORT = 4
"""Letters; of a shorter word another is made by one letter."""
_LONG = 5
"""Letters; a longer word whose beginning and ending stay the same has lost one by a slip."""


def same_word(left: Token, right: Token, vocabulary: Vocabulary, language: str) -> bool:
    """Names and quotations are what they are, to the letter."""
    if left.kind != "word" or right.kind != "word" or left.quoted or right.quoted or left.name or right.name:
        return False
    return left.form[0] == right.form[0] and (
        plural(left.form, right.form) or _typo(left.form, right.form, vocabulary, language)
    )


def _typo(left: str, right: str, vocabulary: Vocabulary, language: str) -> bool:
    """One slip apart, and at most one of them a word that the vocabulary knows.

    It does not know all words. The rarer of two (`digo`, `diga`; `materia`, `material`) must not pass for a slip of the
    other, so another letter is another word, and one more or less is so where the vocabulary is not thorough.
    """
    if min(len(left), len(right)) < 4:
        return False
    slip = _slip(left, right)
    if not slip:
        return False
    known = vocabulary.known(left, language) + vocabulary.known(right, language)
    if known == 2 or slip == "change":
        return False
    if slip in ("swap", "double"):
        return True
    shorter, longer = sorted((left, right), key=len)
    if _CLUSTER.search(shorter) and not _CLUSTER.search(longer):
        return True
    if len(shorter) > _LONG and shorter[:2] == longer[:2] and shorter[-3:] == longer[-3:]:
        return True
    return language in _THOROUGH and (known == 1 or len(shorter) > _SHORT)


def plural(left: str, right: str) -> bool:
    shorter, longer = sorted((left, right), key=len)
    return len(shorter) > 2 and (
        longer in (shorter + "s", shorter + "es") or (shorter[-1] == "y" and longer == shorter[:-1] + "ies")
    )


@lru_cache(maxsize=4096)
def _slip(left: str, right: str) -> str:
    """`swap` (neighbours exchanged), `double` (one letter twice), `drop`, `change`; empty when further apart."""
    if left == right or abs(len(left) - len(right)) > 1:
        return ""
    start = 0
    while start < min(len(left), len(right)) and left[start] == right[start]:
        start += 1
    if len(left) == len(right):
        if left[start + 1 :] == right[start + 1 :]:
            return "change"
        swapped = left[start : start + 2] == right[start : start + 2][::-1] and left[start + 2 :] == right[start + 2 :]
        return "swap" if swapped else ""
    shorter, longer = sorted((left, right), key=len)
    if shorter[start:] != longer[start + 1 :]:
        return ""
    doubled = longer[start] == longer[start - 1] if start else False
    if doubled and longer[start - 1 : start + 1] in ("rr", "ll", "ss", "nn") and len(shorter) < 7:
        return "drop"
    return "double" if doubled else "drop"
