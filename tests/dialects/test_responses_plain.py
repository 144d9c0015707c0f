"""Chat completions as Response objects, strictly valid and complete."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from openai.types.responses import Response

from gateway.dialects.openai_responses.dialect import choices
from gateway.domain.money.usage import Usage
from tests.dialects.responses_samples import NOW, responses_request, translation, wire

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True, "description": None}


def plain(message: dict[str, Any], finish: str = "stop", usage: Usage | None = None, **fields: Any) -> Response:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    completion = {"id": "c1", "object": "chat.completion", "created": 7, "model": "m", "choices": [choice]}
    return Response.model_validate_json(translation.plain(responses_request(**fields), completion, usage))


def test_a_response_repeats_its_request() -> None:
    given: dict[str, Any] = {
        "instructions": "Be brief.", "tools": [TOOL], "tool_choice": {"type": "function", "name": "f"},
        "temperature": 0.5, "top_p": 0.9, "parallel_tool_calls": False, "max_output_tokens": 9,
        "metadata": {"a": "b"}, "truncation": "auto", "user": "u", "safety_identifier": "s",
        "text": {"format": {"type": "json_object"}}, "reasoning": {"effort": "low"}, "service_tier": "flex",
    }  # fmt: skip
    shown = plain({"content": "hello"}, **given).model_dump(mode="json", exclude_unset=True)
    assert {name: shown[name] for name in given} == {
        **given,
        "text": {"format": {"type": "json_object"}, "verbosity": "medium"},
        "reasoning": {"effort": "low", "summary": None},
    }
    assert shown["store"] is False


def test_a_response_says_what_holds_when_the_client_said_nothing() -> None:
    whole = plain({"content": "hello"})
    assert whole.id == "resp_0123456789ab"
    assert (whole.object, whole.status, whole.model, whole.created_at) == ("response", "completed", "m", 7)
    assert (whole.completed_at, whole.error, whole.incomplete_details) == (NOW, None, None)
    assert (whole.tools, whole.tool_choice, whole.parallel_tool_calls) == ([], "auto", True)
    assert (whole.temperature, whole.top_p, whole.truncation, whole.metadata) == (1, 1, "disabled", {})
    assert (whole.previous_response_id, whole.instructions, whole.usage) == (None, None, None)


def test_thinking_text_and_calls_are_items() -> None:
    calls = [
        {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a":  1}'}},
        {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": ""}},
    ]
    whole = plain({"content": "hello", "reasoning_content": "hm", "tool_calls": calls}, "tool_calls")
    assert plain({"content": "hello", "reasoning": "hm", "tool_calls": calls}, "tool_calls").output == whole.output
    reasoning, message, *made = whole.output
    assert reasoning.type == "reasoning"
    assert reasoning.summary[0].text == "hm"
    assert message.type == "message"
    assert whole.output_text == "hello"
    assert [(one.call_id, one.name, one.arguments) for one in made] == [  # type: ignore[union-attr]
        ("call_1", "f", '{"a":  1}'), ("call_2", "g", ""),
    ]  # fmt: skip
    assert len({item.id for item in whole.output}) == 4
    assert [item.id.split("_")[0] for item in whole.output] == ["rs", "msg", "fc", "fc"]  # type: ignore[union-attr]


def test_usage_counts_cached_and_reasoning_tokens_as_parts() -> None:
    usage = Usage(10, 20, 3, 4, output_tokens=5, reasoning_tokens=6)
    told = plain({"content": "hello"}, usage=usage).usage
    assert told is not None
    assert (told.input_tokens, told.output_tokens, told.total_tokens) == (37, 11, 48)
    assert (told.input_tokens_details.cached_tokens, told.input_tokens_details.cache_write_tokens) == (20, 7)
    assert told.output_tokens_details.reasoning_tokens == 6


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_what_was_cut_off_is_incomplete(finish: str, reason: str) -> None:
    whole = plain({"content": "Once"}, finish)
    assert whole.status == "incomplete"
    assert whole.incomplete_details is not None
    assert whole.incomplete_details.reason == reason


def test_a_refusal_is_said_as_one() -> None:
    whole = plain({"content": None, "refusal": "no"})
    assert [part.type for part in whole.output[0].content] == ["refusal"]  # type: ignore[union-attr]


@pytest.mark.parametrize("message", [{"content": None}, {"content": ""}])
def test_an_answer_without_a_word_is_an_empty_message(message: dict[str, Any]) -> None:
    assert [item.type for item in plain(message).output] == ["message"]


def test_a_custom_tools_call_has_its_text() -> None:
    calls = [{"id": "c", "function": {"name": "p", "arguments": '{"input":"a\\nb"}'}}]
    item = plain({"tool_calls": calls}, tools=[{"type": "custom", "name": "p"}]).output[0]
    assert item.type == "custom_tool_call"
    assert item.input == "a\nb"


def test_the_wire_reads_a_backends_answer_into_a_response() -> None:
    message = {"role": "assistant", "content": "hello"}
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    answer = {"id": "c", "created": 1, "model": "m", "choices": [{"message": message, "finish_reason": "stop"}]}
    read = wire.plain(responses_request(), orjson.dumps({**answer, "usage": usage}))
    assert Response.model_validate_json(read.body).output_text == "hello"
    assert read.usage == Usage(5, output_tokens=2)
    assert read.finish == "stop"


@pytest.mark.parametrize(
    ("message", "finish"),
    [
        ({"content": "hello", "refusal": None}, "stop"),
        ({"content": "hello", "refusal": None, "reasoning_content": "hm"}, "length"),
        ({"content": None, "refusal": "no"}, "stop"),
        (
            {
                "content": None,
                "refusal": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            "tool_calls",
        ),
    ],
)
def test_a_stored_response_is_read_as_the_chat_choice_that_it_was(message: dict[str, Any], finish: str) -> None:
    body = plain(message, finish).model_dump(mode="json")
    (choice,) = choices(body)
    assert choice["message"] == {"role": "assistant", **message}
    assert choice["finish_reason"] == finish
