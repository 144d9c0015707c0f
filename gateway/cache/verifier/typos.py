"""Recognises two forms of one word: two spellings, or singular and plural."""

from __future__ import annotations

import re
from functools import lru_cache

from gateway.cache.verifier.text import Token
from gateway.cache.verifier.vocabulary import Vocabulary

_CLUSTER = re.compile(r"[^aeiou]{3}")
"""Matches three consonants in a row. Such a sequence suggests that a vowel is missing."""
_THOROUGH = ("en",)
"""Languages for which the vocabulary contains most words. In these languages, an unknown word is probably misspelt."""
_SHORT = 4
"""Maximum letters of a short word. If one letter is added to or removed from a short word, the result is another word.
"""
_LONG = 5
"""A word with more letters is a long word. If a long word lacks one letter, and its beginning and ending are the same,
the difference is a typo."""


def same_word(left: Token, right: Token, vocabulary: Vocabulary, language: str) -> bool:
    """Whether two tokens are the same word, perhaps misspelt or in the plural. Names and quotations must be
    identical."""
    if left.kind != "word" or right.kind != "word" or left.quoted or right.quoted or left.name or right.name:
        return False
    return left.form[0] == right.form[0] and (
        plural(left.form, right.form) or _typo(left.form, right.form, vocabulary, language)
    )


def _typo(left: str, right: str, vocabulary: Vocabulary, language: str) -> bool:
    """Whether the words differ by one typo, and the vocabulary contains at most one of them.

    A changed letter never counts as a typo. An additional or a missing letter counts only in `_THOROUGH` languages,
    or if a rule makes the typo clear.
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
    """The kind of typo; empty if there is more than one. `swap`: two letters exchanged. `double`: one letter doubled.
    `drop`: one letter missing. `change`: one letter replaced."""
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
