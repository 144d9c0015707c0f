"""Chat streams told as Responses streams, in OpenAI's order and as its SDK accumulates them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.openai_responses.thinking import unpack
from tests.dialects.responses_samples import NOW, accumulate, events, final, responses_request, streamed, types, wire
from tests.dialects.samples import DONE, STOP, USAGE_ONLY, chunk, cut, read, steady, text

BEGIN = ["created", "in_progress"]
TEXT = ["output_item.added", "content_part.added", "output_text.delta"]
TEXT_DONE = ["output_text.done", "content_part.done", "output_item.done"]
ARGUMENTS = ["output_item.added", "function_call_arguments.delta"]
ARGUMENTS_DONE = ["function_call_arguments.done", "output_item.done"]
THOUGHT = ["output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta"]
THOUGHT_DONE = ["reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"]


def call(index: int, arguments: str = "", **more: Any) -> dict[str, Any]:
    """A delta of a tool call; the first one has `id` and `name`."""
    named = {"id": more["id"], "type": "function"} if more else {}
    function = {"arguments": arguments, **({"name": more["name"]} if more else {})}
    return {"tool_calls": [{"index": index, **named, "function": function}]}


def test_text_is_one_message_in_openais_order() -> None:
    stream = streamed(responses_request(stream=True), {"content": "Hel"}, {"content": "lo"})
    assert types(stream) == [*BEGIN, *TEXT, *TEXT_DONE, "completed"]
    whole = accumulate(stream)
    assert whole.output_text == "Hello"
    assert (whole.status, whole.model, whole.created_at, whole.completed_at) == ("completed", "m", 1, NOW)
    assert (whole.usage.input_tokens, whole.usage.output_tokens, whole.usage.total_tokens) == (5, 2, 7)


def test_the_items_of_the_end_are_those_that_were_told_before() -> None:
    deltas = [{"reasoning_content": "hm"}, {"content": "a"}, call(0, "{}", id="call_1", name="f")]
    found = events(streamed(responses_request(stream=True), *deltas, finish="tool_calls"))
    done = [event["item"] for event in found if event["type"] == "response.output_item.done"]
    added = [event["item"]["id"] for event in found if event["type"] == "response.output_item.added"]
    assert done == found[-1]["response"]["output"]
    assert [item["id"] for item in done] == added
    assert [item["type"] for item in done] == ["reasoning", "message", "function_call"]
    assert len({event["response"]["id"] for event in found if "response" in event}) == 1


def test_thinking_comes_first_as_a_summary() -> None:
    stream = streamed(
        responses_request(stream=True),
        {"reasoning_content": "Let me "},
        {"reasoning_content": "see."},
        {"content": "4"},
    )
    assert types(stream) == [*BEGIN, *THOUGHT, *THOUGHT_DONE, *TEXT, *TEXT_DONE, "completed"]
    whole = final(stream)
    assert whole.output[0].type == "reasoning"
    assert whole.output[0].summary[0].text == "Let me see."
    assert whole.output_text == "4"


def test_thinking_after_text_is_an_item_of_its_own() -> None:
    stream = streamed(responses_request(stream=True), {"content": "a"}, {"reasoning_content": "hm"}, {"content": "b"})
    assert types(stream) == [
        *BEGIN, *TEXT, *TEXT_DONE, *THOUGHT, *THOUGHT_DONE, *TEXT, *TEXT_DONE, "completed",
    ]  # fmt: skip
    assert final(stream).output_text == "ab"


def test_what_another_vendor_signed_travels_as_encrypted_content() -> None:
    block = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    hidden = {"type": "redacted_thinking", "data": "xyz"}
    signed: list[dict[str, Any]] = [{"thinking_blocks": [block]}, {"thinking_blocks": [hidden]}]
    whole = final(streamed(responses_request(stream=True), {"reasoning_content": "hm"}, *signed, {"content": "4"}))
    assert whole.output[0].type == "reasoning"
    assert unpack(whole.output[0].encrypted_content) == [block, hidden]


def test_parallel_calls_one_after_the_other_are_closed_in_turn() -> None:
    stream = streamed(
        responses_request(stream=True),
        call(0, id="call_a", name="weather"), call(0, '{"city": '), call(0, '"Bilbao"}'),
        call(1, id="call_b", name="time"), call(1, "{}"),
        finish="tool_calls",
    )  # fmt: skip
    assert types(stream) == [*BEGIN, *[*ARGUMENTS, *ARGUMENTS_DONE] * 2, "completed"]
    calls = accumulate(stream).output
    assert [(one.call_id, one.name, one.arguments) for one in calls] == [
        ("call_a", "weather", '{"city": "Bilbao"}'), ("call_b", "time", "{}"),
    ]  # fmt: skip


def test_interleaved_calls_stay_open_side_by_side() -> None:
    stream = streamed(
        responses_request(stream=True),
        call(0, id="call_a", name="f"), call(1, id="call_b", name="g"),
        call(1, '{"b":'), call(0, '{"a":'), call(0, "1}"), call(1, "2}"),
        finish="tool_calls",
    )  # fmt: skip
    deltas = [
        (event["output_index"], event["delta"])
        for event in events(stream)
        if event["type"] == "response.function_call_arguments.delta"
    ]
    assert deltas == [(1, '{"b":'), (0, '{"a":'), (0, "1}"), (1, "2}")]
    assert [one.arguments for one in accumulate(stream).output] == ['{"a":1}', '{"b":2}']


def test_a_call_is_announced_once_its_name_is_known() -> None:
    beginning = {"tool_calls": [{"index": 0, "id": "call_a", "function": {"arguments": '{"a"'}}]}
    named = {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ":1}"}}]}
    (item,) = accumulate(streamed(responses_request(stream=True), beginning, named, finish="tool_calls")).output
    assert (item.call_id, item.name, item.arguments) == ("call_a", "f", '{"a":1}')


def test_a_message_is_closed_before_a_call_opens() -> None:
    stream = streamed(
        responses_request(stream=True), {"content": "I look."}, call(0, "{}", id="c", name="f"), finish="tool_calls"
    )
    assert types(stream) == [*BEGIN, *TEXT, *TEXT_DONE, *ARGUMENTS, *ARGUMENTS_DONE, "completed"]


def test_text_after_a_call_is_a_message_of_its_own() -> None:
    stream = streamed(
        responses_request(stream=True), {"content": "a"}, call(0, "{}", id="c", name="f"), {"content": "b"}
    )
    whole = accumulate(stream)
    assert [item.type for item in whole.output] == ["message", "function_call", "message"]
    assert len({item.id for item in whole.output}) == 3
    assert whole.output_text == "ab"


def test_a_call_without_arguments_keeps_them_empty() -> None:
    whole = final(streamed(responses_request(stream=True), call(0, id="c", name="f"), finish="tool_calls"))
    assert whole.output[0].type == "function_call"
    assert (whole.output[0].arguments, whole.output[0].status) == ("", "completed")


def test_a_custom_tool_is_called_with_text() -> None:
    request = responses_request(stream=True, tools=[{"type": "custom", "name": "patch"}])
    stream = streamed(
        request, call(0, id="c", name="patch"), call(0, '{"input": "*** Be'), call(0, 'gin\\n"}'), finish="tool_calls"
    )
    custom = ["output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done"]
    assert types(stream) == [*BEGIN, *custom, "completed"]
    item = final(stream).output[0]
    assert item.type == "custom_tool_call"
    assert (item.call_id, item.name, item.input) == ("c", "patch", "*** Begin\n")


def test_a_call_within_a_namespace_has_the_name_that_the_client_knows() -> None:
    inner = [{"type": "function", "name": "read", "parameters": {}}, {"type": "custom", "name": "edit"}]
    request = responses_request(
        stream=True, tools=[{"type": "namespace", "name": "files", "description": "d", "tools": inner}]
    )
    stream = streamed(
        request, call(0, "{}", id="a", name="files__read"), call(1, '{"input":"x"}', id="b", name="files__edit"),
        finish="tool_calls",
    )  # fmt: skip
    read_call, edit_call = final(stream).output
    assert read_call.type == "function_call"
    assert (read_call.name, read_call.namespace) == ("read", "files")
    assert edit_call.type == "custom_tool_call"
    assert (edit_call.name, edit_call.namespace, edit_call.input) == ("edit", "files", "x")


def test_a_refusal_is_a_part_of_its_own() -> None:
    stream = streamed(responses_request(stream=True), {"content": "Well. "}, {"refusal": "I "}, {"refusal": "won't."})
    refusal = ["content_part.added", "refusal.delta", "refusal.done", "content_part.done", "output_item.done"]
    assert types(stream) == [*BEGIN, *TEXT, *TEXT_DONE[:2], *refusal, "completed"]
    message = final(stream).output[0]
    assert message.type == "message"
    assert [part.type for part in message.content] == ["output_text", "refusal"]
    assert message.content[1].refusal == "I won't."  # type: ignore[union-attr]


def test_logprobs_ride_on_the_text() -> None:
    request = responses_request(stream=True, include=["message.output_text.logprobs"], top_logprobs=1)
    other = {"token": "e", "logprob": -2, "bytes": [101]}
    entry = {"token": "é", "logprob": -0.1, "bytes": None, "top_logprobs": [other]}
    choice = {"index": 0, "delta": {"content": "é"}, "finish_reason": None, "logprobs": {"content": [entry]}}
    reader = wire.reader(request)
    stream = read(reader, [chunk(None, choices=[choice]), STOP, USAGE_ONLY, DONE]) + reader.ending
    delta = next(event for event in events(stream) if event["type"] == "response.output_text.delta")
    assert delta["logprobs"][0]["token"] == "é"
    part = final(stream).output[0].content[0]  # type: ignore[union-attr,index]
    assert part.logprobs[0].bytes == [195, 169]  # type: ignore[union-attr,index]
    assert part.logprobs[0].top_logprobs[0].logprob == -2  # type: ignore[union-attr,index]


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_what_was_cut_off_is_incomplete(finish: str, reason: str) -> None:
    stream = streamed(responses_request(stream=True), {"content": "Once"}, finish=finish)
    assert types(stream)[-1] == "incomplete"
    whole = final(stream)
    assert (whole.status, whole.incomplete_details.reason) == ("incomplete", reason)  # type: ignore[union-attr]
    assert whole.output[0].status == "incomplete"  # type: ignore[union-attr]
    assert whole.completed_at is None


def test_an_answer_without_a_word_is_an_empty_message() -> None:
    whole = accumulate(streamed(responses_request(stream=True)))
    assert [item.type for item in whole.output] == ["message"]
    assert whole.output_text == ""


def test_a_backend_that_does_not_count_leaves_usage_out() -> None:
    assert final(streamed(responses_request(stream=True), {"content": "a"}, usage=False)).usage is None


@steady
@given(st.lists(st.integers(0, 1200)))
def test_any_split_of_the_bytes_tells_the_same(at: list[int]) -> None:
    sent = b"".join([
        chunk({"reasoning_content": "ñ"}), text("año "), text("🌈"), chunk(call(0, id="c", name="f")),
        chunk(call(0, '{"ü":1}')), chunk({}, "tool_calls"), USAGE_ONLY, DONE,
    ])  # fmt: skip

    def relayed(pieces: list[bytes]) -> bytes:
        reader = wire.reader(responses_request(stream=True))
        return read(reader, pieces) + reader.ending

    assert relayed(cut(sent, at)) == relayed([sent])


def kept(*deltas: dict[str, Any], finish: str = "stop") -> tuple[bytes, bytes | None]:
    """What a stream told, and what is kept of it."""
    reader = wire.reader(responses_request(stream=True))
    told = read(reader, [*map(chunk, deltas), chunk({}, finish), USAGE_ONLY, DONE])
    return told + reader.ending, reader.completion()


@pytest.mark.parametrize(
    "deltas",
    [
        [{"reasoning_content": "hm"}, {"content": "a"}, call(0, "{}", id="call_1", name="f")],
        [{"content": "a"}, call(0, "{}", id="call_1", name="f"), {"content": "b"}],
        [{"content": "a"}, {"reasoning_content": "hm"}, {"content": "b"}, {"refusal": "no"}],
    ],
)
def test_what_is_kept_of_a_stream_is_the_response_that_it_told(deltas: list[dict[str, Any]]) -> None:
    stream, body = kept(*deltas, finish="tool_calls")
    assert orjson.loads(body or b"") == events(stream)[-1]["response"]


def test_a_long_answer_is_kept_and_one_without_measure_is_not() -> None:
    stream, body = kept(*[{"content": "long " * 2000}] * 60)
    assert orjson.loads(body or b"") == events(stream)[-1]["response"]
    assert kept(*[{"content": "long " * 200_000}] * 5)[1] is None


def test_thinking_has_two_names_among_servers() -> None:
    stream = streamed(
        responses_request(stream=True), {"reasoning": "hm"}, {"reasoning": "hm", "reasoning_content": "hm"}
    )
    assert [item["summary"][0]["text"] for item in events(stream)[-1]["response"]["output"]] == ["hmhm"]
