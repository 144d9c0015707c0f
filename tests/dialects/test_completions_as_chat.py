"""Legacy completions over backends that only chat."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from openai.types import Completion

from gateway.dialects.openai_chat.native import ChatToChat
from gateway.dialects.openai_completions.as_chat import CompletionsAsChat
from gateway.dialects.via_chat import ViaChat
from gateway.errors import BadRequest, StreamBroken
from tests.dialects.samples import DONE, STOP, USAGE, USAGE_ONLY, chunk, events_of, read, text
from tests.support.requests import completions_request

wire = ViaChat(CompletionsAsChat(), ChatToChat())


def test_a_prompt_becomes_what_the_user_says_and_known_and_new_fields_travel() -> None:
    request = completions_request(
        max_tokens=5, stop=["."], seed=1, user="u", tomorrow={"a": 1}, echo=False, suffix=None, best_of=1
    )
    assert orjson.loads(wire.body(request, "m", None)) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 5,
        "stop": ["."],
        "seed": 1,
        "user": "u",
        "tomorrow": {"a": 1},
    }
    assert orjson.loads(wire.body(completions_request(prompt=["one"]), "m", None))["messages"][0]["content"] == "one"


def test_a_stream_is_asked_for_its_usage_whatever_the_client_wants() -> None:
    for options in ({}, {"stream_options": {"include_usage": False}}):
        body = orjson.loads(wire.body(completions_request(stream=True, **options), "m", None))
        assert (body["stream"], body["stream_options"]["include_usage"]) == (True, True)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"prompt": [[1], [2]]}, "prompt"),
        ({"echo": True}, "echo"),
        ({"suffix": "end"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"logprobs": 2}, "logprobs"),
        ({"logprobs": 0}, "logprobs"),
    ],
)
def test_what_chat_cannot_say_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        wire.body(completions_request(**fields), "m", None)
    assert caught.value.param == param


def test_as_many_candidates_as_answers_are_no_choice() -> None:
    assert orjson.loads(wire.body(completions_request(best_of=2, n=2), "m", None))["n"] == 2


def test_a_plain_answer_is_text() -> None:
    choices = [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hello", "reasoning_content": "hm"},
            "finish_reason": "stop",
        },
        {"index": 1, "message": {"role": "assistant", "content": None, "refusal": "no"}, "finish_reason": "length"},
    ]
    top = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
    plain = wire.plain(completions_request(n=2), orjson.dumps({**top, "choices": choices, "usage": USAGE}))
    found = Completion.model_validate_json(plain.body, strict=True)
    assert [(one.index, one.text, one.finish_reason) for one in found.choices] == [
        (0, "hello", "stop"),
        (1, "no", "length"),
    ]
    assert (found.id, found.object, found.model) == ("chatcmpl-1", "text_completion", "m")
    assert found.usage is not None
    assert found.usage.total_tokens == USAGE["total_tokens"]


ROLE = chunk({"role": "assistant", "content": ""})
THOUGHT = chunk({"reasoning_content": "hm"})


@pytest.mark.parametrize("wants_usage", [True, False])
def test_a_stream_is_text_chunks_with_usage_when_asked_and_one_end(wants_usage: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if wants_usage else {}
    reader = wire.reader(completions_request(stream=True, **options))
    relayed = read(reader, [ROLE + THOUGHT, text("a") + text("b"), STOP + USAGE_ONLY + DONE])
    assert reader.ending.endswith(DONE)
    assert (relayed + reader.ending).count(b"[DONE]") == 1
    told = events_of(relayed + reader.ending)
    for one in told:
        assert one["object"] == "text_completion"
        assert set(one) - {"usage"} == {"id", "object", "created", "model", "choices"}
    choices = [choice for one in told for choice in one["choices"]]
    assert [choice["text"] for choice in choices] == ["", "a", "b", ""]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "stop"]
    usages = [one["usage"] for one in told if one.get("usage")]
    assert [usage["total_tokens"] for usage in usages] == ([7] if wants_usage else [])
    completion = reader.completion()
    assert completion is not None
    assert Completion.model_validate_json(completion).choices[0].text == "ab"


def test_a_cut_stream_has_no_end() -> None:
    reader = wire.reader(completions_request(stream=True))
    with pytest.raises(StreamBroken):
        read(reader, [ROLE + text("a")])
    assert reader.ending == b""
