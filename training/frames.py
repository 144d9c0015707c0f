"""Makes pairs of questions in different wordings, about the same or another thing, as training pairs.

A single exchanged word is easy to find if all else is equal. Here the wording changes too, as in `What is the price of
a train ticket?` and `How much does a bus ticket cost?`. All wordings, matters and things were written for this project.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

FRAMES = Path(__file__).parent / "data" / "frames.json"

Pair = tuple[str, str, int]


class Frames:
    """The wordings of one language. Makes the same pairs for the same seed."""

    def __init__(self, language: str, seed: int = 0) -> None:
        own: dict[str, Any] = orjson.loads(FRAMES.read_bytes())[language]
        self._matters: list[list[str]] = own["matters"]
        """Wordings of each question, with placeholders for a thing and a place."""
        self._things: list[list[str]] = own["things"]
        """Groups of similar things."""
        self._places: list[str] = own["places"]
        self._chance = random.Random(seed)  # noqa: S311 - repeatable, no secret

    def pairs(self, count: int) -> Iterator[Pair]:
        """`count` triples of pairs: one question in two wordings (label 1), about another thing (0), about another
        matter (0)."""
        for _ in range(count):
            wordings = self._chance.choice(self._matters)
            others = self._chance.choice([each for each in self._matters if each is not wordings])
            thing, another = self._chance.sample(self._chance.choice(self._things), 2)
            place = self._chance.choice(self._places)
            first, second = self._chance.sample(wordings, 2)
            asked = first.format(thing, place)
            yield asked, second.format(thing, place), 1
            yield asked, self._chance.choice(wordings).format(another, place), 0
            yield asked, self._chance.choice(others).format(thing, place), 0
