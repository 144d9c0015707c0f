"""Embeddings as clients ask for them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.dialects.openai_embeddings.dialect import choices, parse
from gateway.domain.request import CompletionRequest, Controls
from gateway.errors import BadRequest


def ask(**fields: Any) -> CompletionRequest:
    return parse(orjson.dumps({"model": "emb", "input": "hi", **fields}), "req_1", Controls(tier="small"), {})


def test_it_is_one_model_s_affair_without_output_and_never_trimmed() -> None:
    request = ask(input=["a", "b"], encoding_format="base64", dimensions=3)
    assert (request.dialect, request.model, request.stream) == ("openai_embeddings", "emb", False)
    assert (request.max_output_tokens, request.parallel) == (0, 1)
    assert (request.one_model, request.one_context) == (True, False)
    assert (request.controls.untouched, request.controls.tier) == (True, "small")
    assert [turn.text for turn in request.turns] == ["a", "b"]


def test_tokens_count_exactly() -> None:
    assert ask(input=[[1, 2, 3], [4]]).estimated_tokens == 4
    assert ask(input="a text").estimated_tokens is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": [1, "a"]}, "input"),
        ({"model": 1}, "model"),
        ({"encoding_format": 1}, "encoding_format"),
        ({"dimensions": 0}, "dimensions"),
        ({"dimensions": "8"}, "dimensions"),
    ],
)
def test_what_it_could_not_act_on_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        ask(**fields)
    assert caught.value.param == param


def test_a_stored_answer_counts_as_one_that_came_to_its_end() -> None:
    (choice,) = choices({"data": [{}, {}]})
    assert (choice["finish_reason"], choice["message"]["content"]) == ("stop", "2 vectors")
