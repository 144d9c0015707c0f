"""Answers that the gateway ends at their length: what the client hears, and that the rest is only counted."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.dialects.clients import PATHS
from gateway.dialects.registry import wire
from gateway.domain.money.usage import Usage
from gateway.domain.request import Controls
from tests.dialects.samples import DONE, STOP, chunk, events_of, named, streaming, text

DELIVERED = Usage(7, output_tokens=2, estimated=True)
LATE = Usage(5, output_tokens=3)
USED = b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}}\n\n'


@pytest.mark.parametrize("wants_usage", [True, False])
def test_a_chat_stream_ends_with_length_and_what_was_delivered(wants_usage: bool) -> None:
    reader = wire("openai_chat", "openai_chat").reader(streaming(wants_usage=wants_usage))
    reader.feed(chunk({"role": "assistant", "content": ""}, id="chatcmpl-1", created=5, model="m") + text("a"))
    said = reader.cut(DELIVERED)
    assert said is not None
    assert said.endswith(DONE)
    last, *usage = events_of(said)
    assert (last["id"], last["object"]) == ("chatcmpl-1", "chat.completion.chunk")
    assert last["choices"] == [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "length"}]
    assert [one["usage"]["completion_tokens"] for one in usage] == ([2] if wants_usage else [])


def test_of_several_choices_those_under_way_end() -> None:
    reader = wire("openai_chat", "openai_chat").reader(streaming())
    reader.feed(chunk({"content": "a"}) + chunk({"content": "b"}, index=1) + chunk({}, "stop"))
    (last,) = events_of(reader.cut(DELIVERED) or b"")
    assert [choice["index"] for choice in last["choices"]] == [1]


ASKED = {"model": "m", "stream": True, "max_tokens": 9}
HELLO = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {**ASKED, "messages": HELLO}),
        ("/v1/messages", {**ASKED, "messages": HELLO}),
        ("/v1/completions", {**ASKED, "prompt": "hello"}),
        ("/v1/responses", {"model": "m", "stream": True, "input": "hello"}),
    ],
)
def test_what_comes_after_is_counted_and_told_to_nobody(path: str, body: dict[str, Any]) -> None:
    request = PATHS[path].parse(orjson.dumps(body), "req_1", Controls(), {})
    reader = wire(request.dialect, "openai_chat").reader(request)
    reader.feed(text("a") + text("b"))
    ended = reader.cut(DELIVERED)
    assert ended
    before = reader.chunks
    if request.dialect != "openai_chat":
        assert reader.feed(text("c")) == b""
    else:
        reader.feed(text("c"))
    assert reader.chunks == before + 1
    reader.feed(STOP + USED + DONE)
    assert reader.ended
    assert reader.usage == LATE


def test_a_message_is_cut_within_its_block_or_between_two() -> None:
    reader = wire("anthropic_messages", "anthropic_messages").reader(streaming())
    begun = {"id": "msg_1", "role": "assistant", "content": [], "usage": {"input_tokens": 9, "output_tokens": 1}}
    reader.feed(named({"type": "message_start", "message": begun}))
    between = [event["type"] for event in events_of(reader.cut(DELIVERED) or b"")]
    assert between == ["message_delta", "message_stop"]
    reader.feed(named({"type": "content_block_start", "index": 3, "content_block": {"type": "text", "text": ""}}))
    stop, last, _ = events_of(reader.cut(DELIVERED) or b"")
    assert stop == {"type": "content_block_stop", "index": 3}
    assert last["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert last["usage"] == {"input_tokens": 9, "output_tokens": 2}


def test_a_response_is_incomplete_with_what_its_items_have_so_far() -> None:
    reader = wire("openai_responses", "openai_responses").reader(streaming())
    message = {"id": "msg_1", "type": "message", "status": "in_progress", "role": "assistant", "content": []}
    call = {"id": "fc_1", "type": "function_call", "status": "in_progress", "name": "look", "arguments": ""}
    said = [
        {"type": "response.created", "response": {"id": "resp_1", "created_at": 5, "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": message},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "so far"},
        {"type": "response.output_item.added", "output_index": 1, "item": call},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"a":'},
    ]
    for number, event in enumerate(said):
        reader.feed(named({**event, "sequence_number": number}))
    done, last = events_of(reader.cut(DELIVERED) or b"")
    assert (done["type"], done["output_index"], done["sequence_number"]) == ("response.output_item.done", 1, 5)
    assert (last["type"], last["sequence_number"]) == ("response.incomplete", 6)
    response = last["response"]
    assert (response["id"], response["status"]) == ("resp_1", "incomplete")
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    text_item, call_item = response["output"]
    assert text_item["content"][0]["text"] == "so far"
    assert (call_item["status"], call_item["arguments"]) == ("incomplete", '{"a":')
    assert response["usage"]["output_tokens"] == 2
    assert orjson.dumps(response)


def test_what_nobody_understands_cannot_be_cut() -> None:
    request = streaming()
    request.path = "audio/speech"
    opaque = wire("openai_other", "openai_other").reader_of("audio/mpeg")  # type: ignore[attr-defined]
    assert opaque.cut(DELIVERED) is None
