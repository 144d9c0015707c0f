"""Chat streams as Anthropic's."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.translate.messages_to_chat.translator import MessagesToChat
from gateway.domain.body_scan import UNSIGNED
from gateway.domain.money.usage import Usage
from tests.dialects.messages_samples import TOOL, accumulated, said_in, well_formed
from tests.dialects.samples import steady
from tests.support.requests import messages_request

translation = MessagesToChat()
THINKING = {"type": "enabled", "budget_tokens": 1024}
USAGE = Usage(input_tokens=10, cached_tokens=4, output_tokens=5, reasoning_tokens=2)


def chunk(delta: Any = None, **choice: Any) -> dict[str, Any]:
    choices = [{"index": 0, "delta": delta, "finish_reason": None, **choice}]
    return {"id": "chatcmpl-7", "object": "chat.completion.chunk", "created": 1, "model": "gpt", "choices": choices}


def written(*deltas: Any, finish: str = "stop", usage: Usage | None = USAGE, **fields: Any) -> bytes:
    writer = translation.writer(messages_request(stream=True, thinking=THINKING, **fields))
    stream = b"".join(writer.write(delta if "choices" in delta else chunk(delta)) for delta in deltas)
    stream += writer.end(finish, usage)
    well_formed(stream)
    return stream


def call(index: int | None, arguments: Any = None, **more: Any) -> dict[str, Any]:
    """A piece of a call; `name` and `id` come with its first."""
    function = {"name": more.pop("name")} if "name" in more else {}
    said = {**more, "function": {**function, "arguments": arguments}}
    return {"tool_calls": [said if index is None else {"index": index, **said}]}


def blocks(stream: bytes) -> list[dict[str, Any]]:
    return [block.model_dump(exclude_none=True) for block in accumulated(stream).content]


def test_text_as_it_comes() -> None:
    request = messages_request(stream=True)
    request.estimated_tokens = 33
    writer = translation.writer(request)
    first = list(said_in(writer.write(chunk({"role": "assistant", "content": ""}))))
    assert [name for name, _ in first] == [b"message_start", b"ping"]
    assert first[0][1]["message"]["id"] == "msg_7"
    assert first[0][1]["message"]["usage"]["input_tokens"] == 33
    assert [name for name, _ in said_in(writer.write(chunk({"content": "He"})))] == [
        b"content_block_start", b"content_block_delta",
    ]  # fmt: skip
    (only,) = said_in(writer.write(chunk({"content": 'l"lo\n'})))
    assert only[1] == {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 'l"lo\n'}}
    assert writer.write(chunk({}, finish_reason="stop")) == b""
    assert [name for name, _ in said_in(writer.end("stop", USAGE))] == [
        b"content_block_stop", b"message_delta", b"message_stop",
    ]  # fmt: skip


def test_the_end_carries_the_true_counts() -> None:
    message = accumulated(written({"content": "Hi"}, finish="length"))
    assert message.stop_reason == "max_tokens"
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (10, 4, 7)
    assert usage.output_tokens_details is not None
    assert usage.output_tokens_details.thinking_tokens == 2


def test_without_usage_the_estimate_and_the_pieces_count() -> None:
    usage = accumulated(written({"content": "Hi"}, {"content": "!"}, usage=None)).usage
    assert (usage.input_tokens, usage.output_tokens) == (1, 2)


def test_thoughts_then_text_then_calls() -> None:
    stream = written(
        {"role": "assistant", "content": "", "reasoning_content": "hm"},
        {"reasoning": ", so"},
        {"content": "Let me see."},
        call(0, "", id="call_1", name="weather", type="function"),
        call(0, '{"city": "Bil'),
        call(0, 'bao"}'),
        call(1, "", id="call_2", name="time"),
        call(1, "{}"),
        finish="tool_calls",
    )
    assert blocks(stream) == [
        {"type": "thinking", "thinking": "hm, so", "signature": UNSIGNED},
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Bilbao"}},
        {"type": "tool_use", "id": "call_2", "name": "time", "input": {}},
    ]
    pieces = [said["delta"]["partial_json"] for _, said in said_in(stream) if "partial_json" in said.get("delta", {})]
    assert pieces == ['{"city": "Bil', 'bao"}', "{}"]
    assert accumulated(stream).stop_reason == "tool_use"


def test_a_call_is_streamed_while_it_grows_and_the_next_begins_at_once() -> None:
    writer = translation.writer(messages_request(stream=True))
    writer.write(chunk(call(0, "", id="a", name="f")))
    assert b'"partial_json":"{\\"x\\""' in writer.write(chunk(call(0, '{"x"')))
    assert b"partial_json" in writer.write(chunk(call(0, ":1}")))
    second = writer.write(chunk(call(1, '{"y', id="b", name="g")))
    assert [name for name, _ in said_in(second)] == [
        b"content_block_stop",
        b"content_block_start",
        b"content_block_delta",
    ]


def test_calls_told_in_turns_are_told_one_after_the_other() -> None:
    stream = written(
        call(0, '{"a"', id="c0", name="f"),
        call(1, '{"b"', id="c1", name="g"),
        call(2, '{"c', id="c2", name="h"),
        call(1, ": 1}"),
        call(0, ": 0}"),
        call(2, '": 2}'),
        finish="tool_calls",
    )
    assert [(block["id"], block["input"]) for block in blocks(stream)] == [
        ("c0", {"a": 0}),
        ("c1", {"b": 1}),
        ("c2", {"c": 2}),
    ]


@steady
@given(st.data())
def test_however_calls_are_mixed_each_comes_out_whole(data: st.DataObject) -> None:
    wholes = [orjson.dumps({"number": number, "nested": {"x": '}{"' * number}}).decode() for number in range(3)]
    queues = []
    for number, whole in enumerate(wholes):
        cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))
        parts = [whole[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        queues.append([call(number, "", id=f"c{number}", name="f"), *(call(number, part) for part in parts)])
    deltas: list[Any] = []
    while any(queues):
        queue = data.draw(st.sampled_from([queue for queue in queues if queue]))
        deltas.append(queue.pop(0))
        if data.draw(st.integers(0, 5)) == 0:
            deltas.append({"content": "so "})
    stream = written(*deltas, finish="tool_calls")
    found = {block["id"]: block["input"] for block in blocks(stream) if block["type"] == "tool_use"}
    assert found == {f"c{number}": orjson.loads(whole) for number, whole in enumerate(wholes)}
    said = "".join(block["text"] for block in blocks(stream) if block["type"] == "text")
    assert said == "so " * sum("content" in delta for delta in deltas)


def test_calls_without_numbers_or_all_with_the_same_are_told_apart_by_their_ids() -> None:
    for index in (None, 0):
        stream = written(call(index, '{"a":1}', id="x", name="f"), call(index, '{"b":2}', id="y", name="g"))
        assert [(block["id"], block["name"], block["input"]) for block in blocks(stream)] == [
            ("x", "f", {"a": 1}), ("y", "g", {"b": 2}),
        ]  # fmt: skip
        assert accumulated(stream).stop_reason == "tool_use"


def test_a_call_without_an_id_gets_one_and_one_without_a_name_is_none() -> None:
    (block,) = blocks(written(call(0, "{}", name="f"), call(1, "{}")))
    assert block["id"].startswith("toolu_")


def test_arguments_cut_off_by_the_limit_are_what_the_client_can_read() -> None:
    stream = written(call(0, '{"a": [1, 2', id="x", name="f"), finish="length")
    assert accumulated(stream).stop_reason == "max_tokens"
    assert blocks(stream)[0]["input"] == {"a": [1, 2]}


def test_signatures_close_what_they_sign() -> None:
    full = {"type": "thinking", "thinking": "hm, so", "signature": "EqQB"}
    hidden = {"type": "redacted_thinking", "data": "xyz"}
    told = written(
        {"reasoning_content": "hm"}, {"reasoning_content": ", so"}, {"thinking_blocks": [full]}, {"content": "a"}
    )
    assert blocks(told) == [full, {"type": "text", "text": "a"}]
    untold = written({"thinking_blocks": [full, hidden, full]}, {"content": "a"})
    assert blocks(untold) == [full, hidden, full, {"type": "text", "text": "a"}]
    growing = {"type": "thinking", "thinking": "hm", "signature": ""}
    pieces = written(
        {"reasoning_content": "hm", "thinking_blocks": [growing]},
        {"thinking_blocks": [{**growing, "thinking": "", "signature": "Eq"}]},
    )
    assert blocks(pieces) == [{**growing, "signature": "Eq"}]


def test_who_did_not_ask_for_thoughts_sees_none() -> None:
    for thinking in (None, {"type": "disabled"}):
        writer = translation.writer(messages_request(stream=True, thinking=thinking))
        stream = writer.write(chunk({"reasoning_content": "hm"})) + writer.write(chunk({"content": "Hi"}))
        stream += writer.end("stop", USAGE)
        well_formed(stream)
        assert blocks(stream) == [{"type": "text", "text": "Hi"}]


def test_a_refusal_and_a_stop_sequence() -> None:
    refused = accumulated(written({"refusal": "I "}, {"refusal": "won't."}))
    assert (refused.stop_reason, refused.content[0].model_dump()["text"]) == ("refusal", "I won't.")
    met = accumulated(written({"content": "x"}, chunk({}, stop_reason="END"), stop_sequences=["END"]))
    assert (met.stop_reason, met.stop_sequence) == ("stop_sequence", "END")


def test_names_that_had_to_be_cut_are_whole_again() -> None:
    name = "mcp__" + "x" * 80
    cut = translation.chat(messages_request(tools=[{**TOOL, "name": name}]), None)["tools"][0]["function"]["name"]
    (block,) = blocks(written(call(0, "{}", id="x", name=cut), tools=[{**TOOL, "name": name}]))
    assert block["name"] == name


def test_an_answer_that_says_nothing_is_a_message_all_the_same() -> None:
    assert blocks(written()) == []
    assert blocks(written({"role": "assistant", "content": None})) == []


@pytest.mark.parametrize(
    "odd",
    [
        chunk(None), chunk(7), {"id": None, "choices": [7]}, {"choices": [{}]}, chunk({"content": 7}),
        chunk({"tool_calls": 7}), chunk({"tool_calls": [7, {"index": "x"}, {"function": 7}]}),
        chunk({"thinking_blocks": 7}), chunk({"reasoning_content": []}), chunk(call(0, {"a": 1}, id=7, name=["x"])),
    ],
)  # fmt: skip
def test_odd_chunks_do_no_harm(odd: dict[str, Any]) -> None:
    stream = written({"content": "a"}, odd, {"content": "b"})
    assert "".join(block.get("text", "") for block in blocks(stream)) == "ab"
