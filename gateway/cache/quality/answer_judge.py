"""Compares two answers with little computation. The verdict is same, different, or undecided."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TypeAlias

from gateway.cache.packing import Vector
from gateway.domain.text.normalisation import without_accents


class Judgement(Enum):
    RIGHT = "right"
    WRONG = "wrong"
    UNDECIDED = "undecided"


READ_CHARACTERS = 800
"""Number of characters at the beginning of each answer that are compared. An embedder reads no more characters."""

_SHORT_WORDS = 12
"""Maximum words of a short answer. Short answers are compared by the last number that they contain."""
_ALIKE = 0.94
"""Two answers are regarded as the same if their cosine is at least this number."""
_UNLIKE = 0.70
"""Two answers are regarded as different if their cosine is below this number. Both limits are for the packaged
embedder."""

_WORD = re.compile(r"\w+", re.UNICODE)
_NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*")
_VOTES = {"yes": "yes", "si": "yes", "sim": "yes", "true": "yes", "no": "no", "nao": "no", "false": "no"}

Embed: TypeAlias = "Callable[[str], Awaitable[Vector | None]]"


async def judge(stored: str, fresh: str, embed: Embed) -> Judgement:
    """Whether the answers `stored` and `fresh` say the same to a client, or something different; or undecided.

    `embed`: computes the vector of a text. Raises the errors of `embed`.
    """
    left, right = _words(stored), _words(fresh)
    if left == right:
        return Judgement.RIGHT
    votes = _vote(left, stored), _vote(right, fresh)
    if votes[0] and votes[1]:
        if votes[0] != votes[1]:
            return Judgement.WRONG
        if max(len(left), len(right)) <= _SHORT_WORDS:
            return Judgement.RIGHT
    one, two = await embed(stored[:READ_CHARACTERS]), await embed(fresh[:READ_CHARACTERS])
    if one is None or two is None:
        return Judgement.UNDECIDED
    cosine = float(one @ two)
    if cosine < _UNLIKE:
        return Judgement.WRONG
    return Judgement.RIGHT if cosine >= _ALIKE and _numbers(stored) == _numbers(fresh) else Judgement.UNDECIDED


def _words(text: str) -> list[str]:
    """The words of `text`, without case, accents and punctuation."""
    return _WORD.findall(without_accents(text.casefold()))


def _vote(words: list[str], text: str) -> str:
    """The decisive part of an answer: yes or no at its beginning, or the last number of a short answer. Empty if it
    has neither.
    """
    if words and (vote := _VOTES.get(words[0])):
        return vote
    if len(words) > _SHORT_WORDS:
        return ""
    numbers = _numbers(text)
    return numbers[-1] if numbers else ""


def _numbers(text: str) -> list[str]:
    return [number.replace(",", ".").rstrip(".") for number in _NUMBER.findall(text[:READ_CHARACTERS])]
