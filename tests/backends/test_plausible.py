"""Which reports of usage can be true."""

from __future__ import annotations

import pytest

from gateway.backends.plausible import checked_usage, usage_without_answer
from gateway.domain.money.usage import Usage, interrupted
from gateway.domain.record import Attempt
from tests.backends.conftest import backend_at
from tests.fakes.provider import Provider


class Said:
    """An answer of one text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def delivered_text(self) -> str:
        return self._text

    def delivered_characters(self) -> int:
        return len(self._text)

    @property
    def most_characters(self) -> int:
        return len(self._text.encode()) + 100


class Unreadable(Said):
    def delivered_characters(self) -> int:
        raise ValueError("not text")


PROSE = "The quick brown fox jumps over the lazy dog. " * 20
"""900 characters."""


def attempt(text: str) -> Attempt:
    made = Attempt("r-1", 1, backend_at(Provider(), "small"), 0.0)
    made.input_tokens, made.output_bytes, made.chunks = 50, len(text) + 600, 1
    return made


@pytest.mark.parametrize(
    ("reported", "text", "booked"),
    [
        (Usage(9, output_tokens=200), PROSE, Usage(9, output_tokens=200)),
        (Usage(9, output_tokens=57), PROSE, Usage(9, output_tokens=57)),
        (Usage(9, output_tokens=56), PROSE, Usage(9, output_tokens=225, estimated=True, doubt="output_tokens")),
        (
            Usage(9, output_tokens=3, reasoning_tokens=5, doubt="total_tokens"),
            PROSE,
            Usage(9, output_tokens=220, reasoning_tokens=5, estimated=True, doubt="output_tokens+total_tokens"),
        ),
        (Usage(9, reasoning_tokens=500), PROSE, Usage(9, reasoning_tokens=500)),
        (Usage(9), "", Usage(9)),
        (Usage(9), "hi", Usage(9, output_tokens=1, estimated=True, doubt="output_tokens")),
        (Usage(9, output_tokens=1), "x" * 64, Usage(9, output_tokens=1)),
        (Usage(9, output_tokens=1), "-" * 900, Usage(9, output_tokens=1)),
        (Usage(output_tokens=200), PROSE, Usage(50, output_tokens=200, estimated=True, doubt="input_tokens")),
        (Usage(7, estimated=True), PROSE, Usage(7, estimated=True)),
        (None, PROSE, None),
    ],
)
def test_a_report_is_believed_unless_it_is_impossible(reported: Usage | None, text: str, booked: Usage | None) -> None:
    assert checked_usage(reported, attempt(text), Said(text)) == booked


def test_what_cannot_be_read_is_not_checked() -> None:
    assert checked_usage(Usage(9), attempt(PROSE), Unreadable(PROSE)) == Usage(9)


def test_the_text_of_an_answer_is_not_read_if_its_upper_bound_is_possible() -> None:
    class Unread(Unreadable):
        def delivered_text(self) -> str:
            raise AssertionError("the text was read")

    class UnreadAtAll(Unread):
        def delivered_characters(self) -> int:
            raise AssertionError("the characters were counted")

    bound = UnreadAtAll(PROSE).most_characters
    enough = Usage(9, output_tokens=-(-bound // 16))
    assert checked_usage(enough, attempt(PROSE), UnreadAtAll(PROSE)) is enough


def test_an_echo_is_not_checked() -> None:
    assert checked_usage(Usage(9, output_tokens=1), attempt(PROSE), Said(PROSE), echoed=True) == Usage(
        9, output_tokens=1
    )


@pytest.mark.parametrize(
    ("reported", "booked"),
    [
        (None, Usage(50, output_tokens=8, estimated=True)),
        (Usage(9, 40, output_tokens=1), Usage(9, 40, output_tokens=8, estimated=True)),
        (Usage(9, 40, output_tokens=12), Usage(9, 40, output_tokens=12, estimated=True)),
        (Usage(9, output_tokens=1, reasoning_tokens=5), Usage(9, output_tokens=3, reasoning_tokens=5, estimated=True)),
        (
            Usage(service_tier="flex", fees=(("web_search", 1),)),
            Usage(50, output_tokens=8, estimated=True, service_tier="flex", fees=(("web_search", 1),)),
        ),
        (Usage(cached_tokens=40), Usage(cached_tokens=40, output_tokens=8, estimated=True)),
    ],
)
def test_an_interrupted_answer_is_what_was_reported_and_no_less_than_was_delivered(
    reported: Usage | None, booked: Usage
) -> None:
    assert interrupted(reported, 50, 8) == booked


@pytest.mark.parametrize(
    ("body", "booked"),
    [
        (b"", None),
        (b"<html>", None),
        (b'{"choices":[]}', None),
        (b'{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}', None),
        (b'{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":1}}', Usage(7, output_tokens=1)),
        (b'{"choices":[],"usage":{"completion_tokens":1}}', Usage(50, output_tokens=1, estimated=True)),
        (b'{"choices":[{"message":{"content":"four char', Usage(50, output_tokens=3, estimated=True)),
        (b'{"error":{"message":"no"},"usage":{"prompt_tokens":7}}', Usage(7)),
        (b'{"error":{"message":"no', None),
    ],
)
def test_a_body_that_is_no_answer_is_booked_as_it_reports_or_as_it_arrived(body: bytes, booked: Usage | None) -> None:
    assert usage_without_answer(body, "openai_chat", 50) == booked


def test_a_bill_that_was_reported_before_the_last_tokens_is_not_the_cost_of_an_interrupted_answer() -> None:
    reported = Usage(40, output_tokens=2, billed_pico=7)
    assert interrupted(reported, 50, 2).billed_pico == 7
    assert interrupted(reported, 50, 900).billed_pico is None
