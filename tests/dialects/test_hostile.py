"""Whatever arrives, from clients or backends, only the documented errors come out."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.base import Translator
from gateway.dialects.canonical import canonical
from gateway.dialects.registry import wire
from gateway.errors import BackendError, BadRequest
from tests.dialects.samples import STOP, event, steady, streaming, text
from tests.support.requests import chat_request

WORDS = ["", "x", "user", "system", "assistant", "tool", "text", "image_url", "file", "refusal", "function", "auto"]
WORDS += ["json_schema", "allowed_tools", "message_start", "content_block_start", "content_block_delta", "tool_use"]
WORDS += ["message_delta", "message_stop", "text_delta", "input_json_delta", "thinking", "error", "message", "{}", "["]
NAMES = ["role", "content", "type", "text", "tool_calls", "function", "name", "arguments", "id", "index", "delta"]
NAMES += ["choices", "message", "finish_reason", "usage", "logprobs", "tool_call_id", "function_call", "error", "url"]
NAMES += ["image_url", "file", "file_data", "refusal", "content_block", "partial_json", "stop_reason", "input_tokens"]
NAMES += [
    "prompt_tokens",
    "completion_tokens",
    "input",
    "parameters",
    "allowed_tools",
    "tools",
    "json_schema",
    "schema",
]
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, 0, 1, -1, 2.5, 10**18, [], {}, *WORDS]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ["messages", "model", "stream", "stream_options", "tools", "tool_choice", "functions", "function_call", "stop"]
FIELDS += ["response_format", "reasoning_effort", "n", "temperature", "max_tokens", "logprobs", "user", "invented"]
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(WORDS)},
        optional={
            "content": VALUES | st.lists(st.fixed_dictionaries({"type": st.sampled_from(WORDS), "text": VALUES})),
            "tool_calls": st.lists(VALUES, max_size=2),
            "tool_call_id": VALUES,
            "function_call": VALUES,
        },
    ),
    min_size=1,
    max_size=3,
)
WIRES = [wire("openai_chat", "openai_chat"), wire("openai_chat", "anthropic_messages")]


@pytest.mark.parametrize("way", WIRES, ids=["chat", "messages"])
@steady
@given(fields=st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=3), messages=MESSAGES)
def test_a_request_is_either_refused_as_bad_or_can_be_sent(
    way: Translator, fields: dict[str, Any], messages: Any
) -> None:
    with suppress(BadRequest):
        request = chat_request(raw=orjson.dumps({"model": "auto", "messages": messages, **fields}))
        assert orjson.dumps(canonical(request), option=orjson.OPT_SORT_KEYS)
        assert isinstance(orjson.loads(way.body(request, "other", None, max_output_tokens=5)), dict)


@pytest.mark.parametrize("way", WIRES, ids=["chat", "messages"])
@steady
@given(body=st.binary(max_size=20) | VALUES.map(orjson.dumps))
def test_a_plain_answer_is_read_or_garbage(way: Translator, body: bytes) -> None:
    with suppress(BackendError):
        way.plain(chat_request(), body)
    assert way.refusal(422, body, "small").status == 422


@pytest.mark.parametrize("way", WIRES, ids=["chat", "messages"])
@steady
@given(odd=st.lists(st.binary(max_size=20) | VALUES.map(event) | st.just(text("a")) | st.just(STOP), max_size=6))
def test_a_stream_is_read_or_a_backend_error(way: Translator, odd: list[bytes]) -> None:
    reader = way.reader(streaming(logprobs=True) if way is WIRES[0] else streaming())
    with suppress(BackendError):
        for piece in odd:
            reader.feed(piece)
        reader.eof()
    assert isinstance(reader.delivered_text(), str)
    assert reader.usage is None or 0 <= reader.usage.total < 10**9  # impossible counts are left out
    reader.completion()


def test_a_field_nested_deeper_than_python_recurses_is_survived() -> None:
    deep = b'data: {"choices":[{"index":0,"delta":{"x":' + b'{"x":' * 1000 + b"1" + b"}" * 1000 + b"}}]}\n\n"
    reader = WIRES[0].reader(streaming())
    reader.feed(text("a") + deep + deep + STOP)
    reader.eof()
    assert reader.delivered_text() == "a"
    assert reader.completion() is None
