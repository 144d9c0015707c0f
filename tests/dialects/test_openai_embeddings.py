"""Embeddings as clients ask for them."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.dialects.openai_embeddings.dialect import choices
from gateway.domain.request import CompletionRequest, Controls
from gateway.errors import BadRequest
from tests.support.requests import request_in


def embeddings_request(**fields: Any) -> CompletionRequest:
    return request_in("openai_embeddings", controls=Controls(tier="small"), **{"model": "emb", **fields})


def test_it_is_one_model_s_affair_without_output_and_never_trimmed() -> None:
    request = embeddings_request(input=["a", "b"], encoding_format="base64", dimensions=3)
    assert (request.dialect, request.model, request.stream) == ("openai_embeddings", "emb", False)
    assert (request.max_output_tokens, request.parallel) == (0, 1)
    assert (request.one_model, request.one_context) == (True, False)
    assert (request.controls.untouched, request.controls.tier) == (True, "small")
    assert [turn.text for turn in request.turns] == ["a", "b"]


def test_tokens_count_exactly() -> None:
    assert embeddings_request(input=[[1, 2, 3], [4]]).estimated_tokens == 4
    assert embeddings_request(input="a text").estimated_tokens is None


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
        embeddings_request(**fields)
    assert caught.value.param == param


def test_a_stored_answer_counts_as_one_that_came_to_its_end() -> None:
    (choice,) = choices({"data": [{}, {}]})
    assert (choice["finish_reason"], choice["message"]["content"]) == ("stop", "2 vectors")
