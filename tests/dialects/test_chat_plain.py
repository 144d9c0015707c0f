"""Reading plain chat completions."""

from __future__ import annotations

import math
from typing import Any

import orjson
import pytest
from openai.types.chat import ChatCompletion

from gateway.dialects.openai_chat.native import ChatToChat
from gateway.domain.money.usage import Usage
from gateway.errors import BackendGarbage
from tests.dialects.samples import golden
from tests.support.requests import chat_request

wire = ChatToChat()


def reply(*choices: dict[str, Any], **top: Any) -> bytes:
    return orjson.dumps({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, **top})


def choice(finish: str | None = "stop", logprobs: Any = None, **message: Any) -> dict[str, Any]:
    whole = {"role": "assistant", "content": "hello", **message}
    return {"index": 0, "message": whole, "logprobs": logprobs, "finish_reason": finish}


def test_a_real_servers_answer_passes_unchanged_and_is_understood() -> None:
    body = golden("llamacpp_chat.json")
    plain = wire.plain(chat_request(), body)
    assert plain.body is body
    assert plain.usage == Usage(input_tokens=1, cached_tokens=26, output_tokens=24)
    assert plain.finish == "length"
    assert plain.confidence is None
    assert plain.text == "🌈" * 8
    ChatCompletion.model_validate_json(plain.body)


def test_text_is_everything_generated() -> None:
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}]
    message = {"reasoning_content": "hm", "content": "x", "refusal": "no", "tool_calls": calls}
    plain = wire.plain(chat_request(), reply(choice("tool_calls", **message), choice(content="second")))
    assert plain.text == 'hm\nx\nno\nf\n{"a":1}\nsecond'
    assert plain.finish == "tool_calls"


@pytest.mark.parametrize(
    ("reasons", "overall"),
    [
        (["stop", "stop"], "stop"),
        (["stop", "length"], "length"),
        ([None], ""),
        ([None, "stop"], "stop"),
        (["content_filter", "length"], "content_filter"),
        ([7], ""),
    ],
)
def test_one_word_says_how_all_choices_ended(reasons: list[Any], overall: str) -> None:
    assert wire.plain(chat_request(), reply(*(choice(reason) for reason in reasons))).finish == overall


def test_unasked_log_probabilities_give_confidence_and_are_taken_out_byte_by_byte() -> None:
    entries = {"content": [{"token": "a", "logprob": math.log(0.5)}, {"token": "b", "logprob": math.log(0.9)}]}
    with_logprobs = reply(choice(logprobs=entries), choice(logprobs=entries), x=1.0)
    plain = wire.plain(chat_request(), with_logprobs)
    assert plain.confidence == pytest.approx(0.7)
    assert plain.body == reply(choice(), choice(), x=1.0)
    asked = wire.plain(chat_request(logprobs=True), with_logprobs)
    assert asked.body is with_logprobs
    assert asked.confidence == plain.confidence


@pytest.mark.parametrize(
    "logprobs", [{}, {"content": None}, {"content": []}, {"content": [{"logprob": None}]}, {"content": {}}, "x"]
)
def test_odd_log_probabilities_are_no_confidence(logprobs: Any) -> None:
    assert wire.plain(chat_request(logprobs=True), reply(choice(logprobs=logprobs))).confidence is None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html>", "not JSON"),
        (b"", "not JSON"),
        (b"[]", "not an object"),
        (b'{"error":{"message":"out of memory"}}', "out of memory"),
        (b'{"object":"error","message":"busy"}', "busy"),
        (b"{}", "not a chat completion"),
        (b'{"choices":[]}', "not a chat completion"),
        (b'{"choices":{}}', "not a chat completion"),
        (b'{"choices":[1]}', "not a chat completion"),
        (b'{"choices":[{"message":"hello"}]}', "not a chat completion"),
        (b'{"choices":[{"text":"hello"}]}', "not a chat completion"),
    ],
)
def test_what_is_no_answer_is_garbage_with_the_backends_words(body: bytes, words: str) -> None:
    with pytest.raises(BackendGarbage, match=words):
        wire.plain(chat_request(), body)


def test_a_count_that_cannot_be_is_doubted_and_the_answer_still_passes() -> None:
    body = reply(choice(), usage={"prompt_tokens": -4, "completion_tokens": 2})
    plain = wire.plain(chat_request(), body)
    assert plain.usage == Usage(output_tokens=2, doubt="input_tokens")
    assert plain.body is body
