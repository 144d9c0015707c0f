"""Legacy completions as clients ask for them, and a stored one told again."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types import Completion

from gateway.dialects.openai_completions.dialect import choices, parse, replayed
from gateway.domain.request import CompletionRequest, Controls
from gateway.errors import BadRequest
from tests.dialects.samples import DONE, USAGE, events_of
from tests.support.requests import completions_request


def beta_request(**fields: Any) -> CompletionRequest:
    return completions_request(headers={b"openai-beta": b"x", b"authorization": b"secret"}, **fields)


def test_what_the_gateway_acts_on_is_read() -> None:
    request = beta_request(stream=True, stream_options={"include_usage": True}, max_tokens=7, temperature=0.5, n=3)
    assert (request.dialect, request.model, request.stream, request.wants_usage) == (
        "openai_completions",
        "auto",
        True,
        True,
    )
    assert (request.max_output_tokens, request.temperature, request.parallel) == (7, 0.5, 3)
    assert (request.last_user, request.one_context, request.one_model) == ("hello", True, False)
    assert request.headers == {b"openai-beta": b"x"}
    assert request.needs == frozenset()


@pytest.mark.parametrize(
    ("fields", "parallel", "one_context", "one_model", "tokens"),
    [
        ({"prompt": ["a"]}, 1, True, False, None),
        ({"prompt": ["a", "b"], "n": 2}, 4, False, False, None),
        ({"prompt": "a", "best_of": 5, "n": 2}, 5, True, False, None),
        ({"prompt": [1, 2, 3]}, 1, False, True, 3),
        ({"prompt": [[1, 2], [3]]}, 2, False, True, 3),
    ],
)
def test_several_prompts_are_several_answers_and_tokens_bind_to_a_model(
    fields: dict[str, Any], parallel: int, one_context: bool, one_model: bool, tokens: int | None
) -> None:
    request = beta_request(**fields)
    assert (request.parallel, request.one_context, request.one_model) == (parallel, one_context, one_model)
    assert request.estimated_tokens == tokens


def test_log_probabilities_need_a_backend_that_has_them() -> None:
    assert beta_request(logprobs=0).needs == {"logprobs"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": {}}, "prompt"),
        ({"model": None}, "model"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"best_of": "2"}, "best_of"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"logprobs": True}, "logprobs"),
        ({"echo": "yes"}, "echo"),
        ({"suffix": 1}, "suffix"),
        ({"stream": 1}, "stream"),
        ({"stream_options": []}, "stream_options"),
        ({"temperature": "hot"}, "temperature"),
    ],
)
def test_what_it_could_not_act_on_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        beta_request(**fields)
    assert caught.value.param == param


@pytest.mark.parametrize("body", [b"", b"[]", b'{"model":', b'{"model":"m","prompt":NaN}', b'"\\ud800"'])
def test_bad_json_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        parse(body, "r", Controls(), {})


STORED = {
    "id": "cmpl-1",
    "object": "text_completion",
    "created": 5,
    "model": "m",
    "choices": [{"text": " ".join("word" for _ in range(40)), "index": 0, "logprobs": None, "finish_reason": "stop"}],
    "usage": USAGE,
}


def test_a_stored_answer_has_its_choices_in_chat_form() -> None:
    (choice,) = choices(STORED)
    assert choice["message"]["content"] == STORED["choices"][0]["text"]  # type: ignore[index]
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize("wants_usage", [True, False])
def test_a_stored_answer_is_told_again_as_a_stream(wants_usage: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if wants_usage else {}
    events, ending = replayed(beta_request(stream=True, **options), STORED)
    assert ending == DONE
    chunks = [Completion.model_construct(**chunk) for chunk in events_of(events)]
    assert all(chunk.object == "text_completion" and chunk.id == "cmpl-1" for chunk in chunks)
    told = [choice for chunk in events_of(events) for choice in chunk["choices"]]
    assert "".join(choice["text"] for choice in told) == STORED["choices"][0]["text"]  # type: ignore[index]
    assert [choice["finish_reason"] for choice in told if choice["finish_reason"]] == ["stop"]
    assert len(told) > 2
    assert [chunk["usage"] for chunk in events_of(events) if chunk.get("usage")] == ([USAGE] if wants_usage else [])
