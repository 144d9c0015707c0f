"""Who compares two answers, and when nobody can say."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.domain.request import CompletionRequest
from gateway.learning.judges import MOST_CHARACTERS, Agreement, Blind, Exact
from tests.support.requests import small_request

PROSE = "The river rises in the hills and is slow and wide where it meets the sea, as everyone there knows well."
QUESTION = small_request("How much is it?")


def choices_of(text: str) -> list[dict[str, Any]]:
    return [{"message": {"role": "assistant", "content": text}}]


@pytest.mark.parametrize(
    ("one", "trusted", "finish", "score"),
    [
        ("The answer is 1,200.", "#### 1200", "stop", 1.0),
        ("The answer is 12.", "#### 1200", "stop", 0.0),
        ("", "1200", "stop", 0.0),
        ("I'm sorry, but I can't help with that.", "1200", "stop", 0.0),
        ("It begins, and then", "1200", "length", 0.0),
        (PROSE, PROSE.upper(), "stop", None),
        ("1200", "", "stop", None),
    ],
)
async def test_agreement_compares_what_answers_come_down_to(
    one: str, trusted: str, finish: str, score: float | None
) -> None:
    assert await Agreement().compare(QUESTION, choices_of(one), choices_of(trusted), finish) == score


async def test_exact_compares_texts() -> None:
    assert await Exact().compare(QUESTION, choices_of(" Yes. "), choices_of("yes"), "stop") == 1.0
    assert await Exact().compare(QUESTION, choices_of("The answer is yes"), choices_of("yes"), "stop") == 0.0
    assert await Exact().compare(QUESTION, choices_of("x"), choices_of(""), "stop") is None


@pytest.mark.parametrize(
    ("verdicts", "score"),
    [
        (("A", "B"), 1.0),
        (("B", "A"), 0.0),
        (("same", "SAME."), 1.0),
        (("A", "A"), 0.5),
        (("B", "B"), 0.5),
        (("SAME", "A"), 0.5),
        (("I think", "A"), None),
        (("A", ""), None),
    ],
)
async def test_a_blind_judge_is_asked_twice_and_order_cancels_out(
    verdicts: tuple[str, str], score: float | None
) -> None:
    asked: list[CompletionRequest] = []

    async def reply(request: CompletionRequest) -> list[dict[str, Any]]:
        asked.append(request)
        return choices_of(verdicts[len(asked) - 1])

    found = await Blind("judge", reply).compare(QUESTION, choices_of("one"), choices_of("another"), "stop")
    assert found == score
    first, second = (request.last_user for request in asked)
    assert '"A":"one","B":"another"' in first
    assert '"A":"another","B":"one"' in second


async def test_what_is_equal_or_too_long_is_not_asked_about() -> None:
    async def never(request: CompletionRequest) -> None:
        raise AssertionError("nobody needs to be asked")

    judge = Blind("judge", never)
    assert await judge.compare(QUESTION, choices_of("Yes"), choices_of("yes."), "stop") == 1.0
    assert await judge.compare(QUESTION, choices_of("x" * MOST_CHARACTERS), choices_of("yes"), "stop") is None
    assert await judge.compare(QUESTION, choices_of(""), choices_of("yes"), "stop") is None
