"""Computes the shares of right and of wrong hits at each threshold of the verifier's score, for labelled pairs of
questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    threshold: float
    """Minimum score of a hit, from 0 to 1."""
    right: float
    """Share of hits among the pairs with label 1; nan if there are no such pairs."""
    wrong: float
    """Share of hits among the pairs with label 0; nan if there are no such pairs."""
    wrong_of_all: float


def curve(scores: Sequence[float], labels: Sequence[int], steps: int = 100) -> list[Point]:
    """One point for each of `steps` equally spaced thresholds, in ascending order. Raises ValueError if there are no
    pairs."""
    if not scores or len(scores) != len(labels):
        raise ValueError("give one label for each score, and one score at least")
    kept = sorted(score for score, label in zip(scores, labels, strict=True) if label)
    false = sorted(score for score, label in zip(scores, labels, strict=True) if not label)
    points = []
    for step in range(1, steps + 1):
        threshold = step / steps
        right, wrong = (sum(score >= threshold for score in side) for side in (kept, false))
        points.append(
            Point(
                threshold,
                right / len(kept) if kept else float("nan"),
                wrong / len(false) if false else float("nan"),
                wrong / len(scores),
            )
        )
    return points
