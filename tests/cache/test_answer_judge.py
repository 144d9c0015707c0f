from __future__ import annotations

import numpy as np
import pytest

from gateway.cache.quality.answer_judge import Judgement, judge


class Cosine:
    """Says how alike two texts are, and counts who asked."""

    def __init__(self, cosine: float) -> None:
        self.cosine, self.asked = cosine, 0

    async def embed(self, text: str, owner: str = "") -> np.ndarray | None:
        self.asked += 1
        angle = 0.0 if self.asked % 2 else float(np.arccos(self.cosine))
        return np.array([np.cos(angle), np.sin(angle)], dtype=np.float32)


LONG = "Rice is cooked in twice as much water as there is rice, with a lid on, over a low flame, until it is soft."


@pytest.mark.parametrize(
    ("stored", "fresh", "cosine", "judged"),
    [
        ("Lima.", "lima", 0.0, Judgement.RIGHT),
        ("É São Paulo", "e sao paulo!", 0.0, Judgement.RIGHT),
        ("Yes, you can.", "No, you cannot.", 0.99, Judgement.WRONG),
        ("Sí, claro", "No", 0.99, Judgement.WRONG),
        ("The answer is 42", "It is 43.", 0.99, Judgement.WRONG),
        ("The answer is 42", "42", 0.0, Judgement.RIGHT),
        (LONG, LONG.replace("low", "gentle"), 0.97, Judgement.RIGHT),
        (LONG, LONG + " It takes 12 minutes.", 0.97, Judgement.UNDECIDED),
        (LONG, LONG.replace("low", "high"), 0.85, Judgement.UNDECIDED),
        (LONG, "Gravity pulls bodies towards each other.", 0.1, Judgement.WRONG),
    ],
)
async def test_answers_are_compared(stored: str, fresh: str, cosine: float, judged: Judgement) -> None:
    assert await judge(stored, fresh, Cosine(cosine).embed) is judged


async def test_the_embedder_is_asked_only_when_words_do_not_tell() -> None:
    cosine = Cosine(1.0)
    await judge("Yes.", "yes", cosine.embed)
    await judge("3", "4", cosine.embed)
    assert cosine.asked == 0


async def test_what_no_embedder_reads_stays_undecided() -> None:
    async def embed(text: str) -> None:
        return None

    assert await judge("this and that", "something else", embed) is Judgement.UNDECIDED
