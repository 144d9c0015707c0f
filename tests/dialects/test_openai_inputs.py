"""Input in four forms."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.openai_completions.inputs import MAX_INPUTS, read_inputs
from gateway.errors import BadRequest


@pytest.mark.parametrize(
    ("given", "texts", "tokens"),
    [
        ("one text", ["one text"], None),
        (["one", "two"], ["one", "two"], None),
        ([5, 6, 7], [""], 3),
        ([[5, 6, 7], [8]], ["", ""], 4),
        ("", [""], None),
    ],
)
def test_each_form_is_read_and_tokens_are_counted_exactly(given: Any, texts: list[str], tokens: int | None) -> None:
    read = read_inputs({"input": given}, "input")
    assert (read.texts, read.tokens) == (texts, tokens)
    assert [(turn.index, turn.role, turn.text) for turn in read.turns] == [
        (index, "user", text) for index, text in enumerate(texts)
    ]


@pytest.mark.parametrize(
    ("given", "param"),
    [
        (None, "input"),
        (5, "input"),
        ({"text": "a"}, "input"),
        ([], "input"),
        ([True], "input"),
        (["a", 1], "input"),
        ([{"text": "a"}], "input"),
        ([-1], "input"),
        ([[1], []], "input[1]"),
        ([[1], ["a"]], "input[1]"),
        (["a"] * (MAX_INPUTS + 1), "input"),
    ],
)
def test_anything_else_is_refused_by_name(given: Any, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_inputs({"input": given}, "input")
    assert caught.value.param == param


def test_a_text_of_very_many_tokens_is_one_input() -> None:
    assert read_inputs({"input": [1] * (MAX_INPUTS + 1)}, "input").tokens == MAX_INPUTS + 1
