"""Aligns two sequences of tokens. Finds the tokens that both have in the same order, and the gaps in which the
sequences differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from gateway.cache.verifier.text import Reading, Token

_LONGEST_MIDDLE = 60
"""Maximum number of tokens between the common beginning and the common end of two texts. Texts that differ over a
longer stretch are different questions."""


@dataclass(slots=True)
class Gap:
    """The tokens of both texts at one position where the texts differ."""

    stored: list[Token]
    asked: list[Token]
    first: bool
    last: bool
    """`first`, `last`: whether the gap is at the beginning or at the end of the text. Polite phrases usually are at
    these positions."""


def align(stored: Reading, asked: Reading) -> tuple[list[Gap], list[tuple[int, int]]] | None:
    """The gaps, and the pairs of positions of matching tokens. None if the texts differ too much.

    Matching tokens are those of the longest common subsequence.
    """
    a, b = stored.forms, asked.forms
    start = 0
    while start < len(a) and start < len(b) and a[start] == b[start]:
        start += 1
    end = 0
    while end < len(a) - start and end < len(b) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    middle_a, middle_b = a[start : len(a) - end], b[start : len(b) - end]
    if max(len(middle_a), len(middle_b)) > _LONGEST_MIDDLE:
        return None
    pairs = [(place, place) for place in range(start)]
    pairs += [(start + i, start + j) for i, j in _subsequence(middle_a, middle_b)]
    pairs += [(len(a) - end + place, len(b) - end + place) for place in range(end)]
    return _gaps(stored, asked, pairs), pairs


def _subsequence(a: tuple[str, ...], b: tuple[str, ...]) -> list[tuple[int, int]]:
    if not a or not b:
        return []
    width = len(b)
    lengths = [[0] * (width + 1)]
    for left in a:
        above = lengths[-1]
        row = [0] * (width + 1)
        for j, right in enumerate(b):
            row[j + 1] = above[j] + 1 if left == right else row[j] if row[j] > above[j + 1] else above[j + 1]
        lengths.append(row)
    pairs = []
    i, j = len(a), width
    while i and j:
        if a[i - 1] == b[j - 1]:
            i, j = i - 1, j - 1
            pairs.append((i, j))
        elif lengths[i - 1][j] >= lengths[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return pairs[::-1]


def _gaps(stored: Reading, asked: Reading, pairs: list[tuple[int, int]]) -> list[Gap]:
    gaps = []
    i = j = 0
    for next_i, next_j in [*pairs, (len(stored.tokens), len(asked.tokens))]:
        if next_i > i or next_j > j:
            last = next_i == len(stored.tokens) and next_j == len(asked.tokens)
            gap = Gap(list(stored.tokens[i:next_i]), list(asked.tokens[j:next_j]), i == 0 and j == 0, last)
            gaps.append(gap)
        i, j = next_i + 1, next_j + 1
    return gaps


@lru_cache(maxsize=16384)
def stem(form: str) -> str:
    """`form` without its ending, if the ending is a common one of English verbs or plurals."""
    for ending in ("ies", "ing", "ed", "es", "s", "e"):
        if form.endswith(ending) and len(form) - len(ending) > 3:
            return form[: -len(ending)]
    return form


def unmatched(gaps: Iterable[Gap]) -> tuple[list[str], list[str]]:
    """For each text, the words in its gaps whose stems do not occur in the other text's gaps."""
    stored: dict[str, str] = {}
    asked: dict[str, str] = {}
    for gap in gaps:
        stored |= {stem(token.form): token.form for token in gap.stored}
        asked |= {stem(token.form): token.form for token in gap.asked}
    return (
        [form for each, form in stored.items() if each not in asked],
        [form for each, form in asked.items() if each not in stored],
    )
