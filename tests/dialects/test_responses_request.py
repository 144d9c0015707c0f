"""Responses requests: what is refused, what the gateway understands of them, and how they are said as chat."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.dialects.openai_responses.dialect import error_body, error_event, parse
from gateway.dialects.openai_responses.request import kept
from gateway.dialects.openai_responses.thinking import pack, unpack
from gateway.dialects.openai_responses.tools import known_tools
from gateway.domain.request import Controls
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BadRequest, StreamBroken
from tests.dialects.responses_samples import chat_fields_of, responses_request, translation

WEATHER = {
    "type": "function", "name": "weather", "description": "d", "strict": True,
    "parameters": {"type": "object", "properties": {}},
}  # fmt: skip
CALL = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Bilbao" }'}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "sunny"}
DATA = "data:image/png;base64,AAAA"
SIGNED = [{"type": "thinking", "thinking": "hm", "signature": "s"}]


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": 1}, "model"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"input": ["hello"]}, "input[0]"),
        ({"input": [{"type": 3}]}, "input[0]"),
        ({"input": [{"role": 3, "content": "a"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": 3}]}, "input[0].content"),
        ({"input": [user({"type": "input_text"})]}, "input[0].content[0].text"),
        ({"input": [user({"text": "a"})]}, "input[0].content[0]"),
        ({"input": [{**CALL, "arguments": {}}]}, "input[0].arguments"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": None}]}, "input[0].output"),
        ({"input": [{"type": "reasoning", "summary": "hm"}]}, "input[0].summary"),
        ({"instructions": ["a"]}, "instructions"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"stream": 1}, "stream"),
        ({"tools": {}}, "tools"),
        ({"tools": ["weather"]}, "tools[0]"),
        ({"text": "json"}, "text"),
        ({"text": {"format": "json"}}, "text.format"),
        ({"reasoning": "high"}, "reasoning"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"conversation": {"id": "conv_1"}, "input": None}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}, "input": None}, "prompt"),
        ({"input": [{"type": "additional_tools"}]}, "input[0].tools"),
        ({"input": [{"type": "tool_search_output", "tools": ["f"]}]}, "input[0].tools[0]"),
    ],
)
def test_what_cannot_be_acted_on_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        responses_request(**fields)
    assert caught.value.param == param


@pytest.mark.parametrize("body", [b"", b"[]", b'{"input": NaN}', b'{"model": "a", "input": "\\ud800"}', b"{" * 500])
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        parse(body, "req_1", Controls(), {})


def test_a_text_is_the_users_turn() -> None:
    request = responses_request(
        input="hello", instructions="Be brief.", max_output_tokens=9, temperature=0, stream=True
    )
    assert [(turn.index, turn.role, turn.text) for turn in request.turns] == [
        (-1, "system", "Be brief."), (0, "user", "hello"),
    ]  # fmt: skip
    assert (request.max_output_tokens, request.temperature, request.stream) == (9, 0, True)
    assert request.needs == frozenset()


def test_every_item_is_a_turn_but_reasoning() -> None:
    request = responses_request(input=[
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "What is this?"}, {"type": "input_image", "image_url": DATA}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        CALL,
        RESULT,
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    ])  # fmt: skip
    turns = [(turn.index, turn.role, turn.text, turn.images, turn.calls, turn.results) for turn in request.turns]
    assert turns == [
        (0, "system", "Be brief.", 0, (), ()),
        (1, "user", "What is this?", 1, (), ()),
        (3, "assistant", "", 0, ("c1",), ()),
        (4, "tool", "sunny", 0, (), ("c1",)),
        (5, "assistant", "no", 0, (), ()),
    ]
    assert request.needs == {"tools", "vision"}


@pytest.mark.parametrize(
    ("fields", "need"),
    [
        ({"tools": [WEATHER]}, "tools"),
        ({"text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}}, "json_schema"),
        ({"include": ["message.output_text.logprobs"]}, "logprobs"),
        ({"top_logprobs": 2}, "logprobs"),
        ({"reasoning": {"effort": "high"}}, "reasoning"),
    ],
)
def test_what_a_backend_must_be_capable_of(fields: dict[str, Any], need: str) -> None:
    assert responses_request(**fields).needs == {need}


def test_a_small_request_is_a_small_chat_request() -> None:
    assert chat_fields_of(input="hello", instructions="Be brief.") == {
        "model": "auto",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}],
    }


def test_a_whole_tool_loop_is_said_as_chat_has_it() -> None:
    messages = chat_fields_of(instructions="Be brief.", input=[
        {"role": "developer", "content": [{"type": "input_text", "text": "Metric units."}]},
        {"role": "user", "content": "Weather and time?"},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "two calls"}],
         "encrypted_content": pack(SIGNED)},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
        CALL,
        {**CALL, "call_id": "c2", "name": "time", "arguments": ""},
        RESULT,
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "noon"}]},
        {"role": "assistant", "content": "Sunny, noon."},
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
    ])["messages"]  # fmt: skip
    assert messages == [
        {"role": "system", "content": "Be brief.\n\nMetric units."},
        {"role": "user", "content": "Weather and time?"},
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning_content": "two calls",
            "thinking_blocks": SIGNED,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": CALL["arguments"]}},
                {"id": "c2", "type": "function", "function": {"name": "time", "arguments": ""}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "tool", "tool_call_id": "c2", "content": "noon"},
        {"role": "assistant", "content": "Sunny, noon."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]


def test_calls_that_are_answered_one_by_one_stay_apart() -> None:
    second, result = {**CALL, "call_id": "c2"}, {**RESULT, "call_id": "c2"}
    messages = chat_fields_of(input=[{"role": "user", "content": "?"}, CALL, RESULT, second, result])["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "tool"]


def test_thinking_between_calls_does_not_part_them() -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    messages = chat_fields_of(input=[CALL, thought, {**CALL, "call_id": "c2"}, RESULT, {**RESULT, "call_id": "c2"}])[
        "messages"
    ]
    assert [message["role"] for message in messages] == ["assistant", "tool", "tool"]
    assert [call["id"] for call in messages[0]["tool_calls"]] == ["c1", "c2"]
    assert messages[0]["reasoning_content"] == "hm"


def test_images_files_and_cache_marks_are_said_as_chat_has_them() -> None:
    pdf = "data:application/pdf;base64,AAAA"
    parts = chat_fields_of(input=[user(
        {"type": "input_text", "text": "see", "prompt_cache_breakpoint": {"mode": "explicit"}},
        {"type": "input_image", "image_url": DATA, "detail": "low"},
        {"type": "input_file", "filename": "a.pdf", "file_data": pdf},
    )])["messages"][0]["content"]  # fmt: skip
    assert parts == [
        {"type": "text", "text": "see", "cache_control": {"type": "ephemeral"}},
        {"type": "image_url", "image_url": {"url": DATA, "detail": "low"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": pdf}},
    ]


def test_parameters_have_their_chat_names() -> None:
    schema = {"type": "object", "properties": {}}
    form = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    body = chat_fields_of(
        max_output_tokens=9, temperature=0.5, top_p=0.9, parallel_tool_calls=False, tools=[WEATHER],
        text={"format": form, "verbosity": "low"}, reasoning={"effort": "low", "summary": "auto"}, user="u",
        top_logprobs=3, safety_identifier="s", prompt_cache_key="k", top_k=5, stream=True,
        store=False, metadata={"a": "b"}, include=["reasoning.encrypted_content"], truncation="auto",
        stream_options={"include_obfuscation": False}, max_tool_calls=3, background=False,
    )  # fmt: skip
    assert {name: value for name, value in body.items() if name not in ("model", "messages")} == {
        "stream": True,
        "max_completion_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "tools": [{"type": "function", "function": {name: WEATHER[name] for name in WEATHER if name != "type"}}],
        "parallel_tool_calls": False,
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}},
        "verbosity": "low",
        "logprobs": True,
        "top_logprobs": 3,
        "reasoning_effort": "low",
        "user": "u",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "top_k": 5,
    }
    assert chat_fields_of(text={"format": {"type": "json_object"}})["response_format"] == {"type": "json_object"}


TIME = {"type": "function", "name": "time", "parameters": None}


@pytest.mark.parametrize(
    ("choice", "wanted", "names"),
    [
        ("auto", "auto", ["weather", "time"]),
        ("required", "required", ["weather", "time"]),
        ("none", "none", ["weather", "time"]),
        ({"type": "function", "name": "time"}, {"type": "function", "function": {"name": "time"}}, ["weather", "time"]),
        ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "time"}]},
         "required", ["time"]),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "time"}]}, "auto", ["time"]),
    ],
)  # fmt: skip
def test_every_form_of_tool_choice_means_the_same(choice: Any, wanted: Any, names: list[str]) -> None:
    body = chat_fields_of(tools=[WEATHER, TIME], tool_choice=choice)
    assert body["tool_choice"] == wanted
    assert [tool["function"]["name"] for tool in body["tools"]] == names


def test_a_custom_tool_is_a_function_of_one_text() -> None:
    tool = {"type": "custom", "name": "patch", "description": "Edit.",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: /a/"}}  # fmt: skip
    call = {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": 'say "hello"'}
    result = {"type": "custom_tool_call_output", "call_id": "c", "output": "done"}
    body = chat_fields_of(tools=[tool], input=[{"role": "user", "content": "?"}, call, result])
    function = body["tools"][0]["function"]
    assert function["parameters"]["required"] == ["input"]
    assert function["description"] == "Edit.\n\nThe input must follow this lark grammar:\nstart: /a/"
    made = body["messages"][1]["tool_calls"][0]["function"]
    assert orjson.loads(made["arguments"]) == {"input": 'say "hello"'}
    assert body["messages"][2] == {"role": "tool", "tool_call_id": "c", "content": "done"}


SPACE = {
    "type": "namespace", "name": "files", "description": "d",
    "tools": [{"type": "function", "name": "read", "parameters": {}}, {"type": "custom", "name": "edit"}],
}  # fmt: skip


def test_a_namespace_is_said_in_its_functions_names() -> None:
    call = {**CALL, "name": "read", "namespace": "files"}
    body = chat_fields_of(tools=[WEATHER, SPACE], input=[{"role": "user", "content": "?"}, call, RESULT])
    assert [tool["function"]["name"] for tool in body["tools"]] == ["weather", "files__read", "files__edit"]
    assert body["messages"][1]["tool_calls"][0]["function"]["name"] == "files__read"
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "namespace", "name": "files"}]}
    assert len(chat_fields_of(tools=[WEATHER, SPACE], tool_choice=choice)["tools"]) == 2


@pytest.mark.parametrize("kind", ["web_search", "web_search_preview", "image_generation", "tool_search"])
@pytest.mark.parametrize("choice", [{}, *[{"tool_choice": choice} for choice in ("auto", {**TIME, "name": "weather"})]])
def test_hosted_tools_beside_the_clients_own_are_left_out(kind: str, choice: dict[str, Any]) -> None:
    body = chat_fields_of(tools=[{"type": kind}, WEATHER], **choice)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["weather"]


@pytest.mark.parametrize(("kind", "place"), [("additional_tools", 0), ("tool_search_output", 1)])
def test_tools_among_the_items_are_tools_like_any_other(kind: str, place: int) -> None:
    """Coding agents offer them there, so that what was said before stays cached."""
    items: list[dict[str, Any]] = [{"role": "user", "content": "?"}]
    items.insert(place, {"type": kind, "role": "developer", "tools": [SPACE, {"type": "tool_search"}, TIME]})
    request = responses_request(input=items, tools=[{**TIME, "description": "older"}])
    body = translation.chat(request, None)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["time", "files__read", "files__edit"]
    assert "description" not in body["tools"][0]["function"]
    assert body["messages"] == [{"role": "user", "content": "?"}]
    assert request.needs == {"tools"}
    turn = request.turns[place]
    assert (turn.index, turn.role) == (place, "system")  # counted as input, never dropped
    assert "edit" in turn.text
    assert responses_request(input=items).needs == {"tools"}


def test_what_was_searched_for_is_left_out_as_what_was_found_follows() -> None:
    items = [
        {"role": "user", "content": "?"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "tool_search_call", "call_id": "ts_1", "arguments": {"query": "q"}, "execution": "client"},
        {"role": "assistant", "content": "Found."},
    ]
    assert [message["role"] for message in chat_fields_of(input=items)["messages"]] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        ({"type": "custom", "name": "edit"}, "files__edit"),
        ({"type": "function", "name": "read", "namespace": "files"}, "files__read"),
        ({"type": "function", "name": "read"}, "read"),
        ({"type": "function", "name": "nobody"}, "nobody"),
    ],
)
def test_a_tool_that_is_chosen_may_be_in_a_namespace(choice: dict[str, Any], name: str) -> None:
    body = chat_fields_of(tools=[SPACE, {**TIME, "name": "read"}], tool_choice=choice)
    assert body["tool_choice"] == {"type": "function", "function": {"name": name}}


def test_a_name_that_a_namespace_makes_too_long_is_shortened_and_given_back() -> None:
    space = {"type": "namespace", "name": "n" * 50, "tools": [{**TIME, "name": "t" * 30}]}
    body = chat_fields_of(tools=[space], input=[{**CALL, "name": "t" * 30, "namespace": "n" * 50}, RESULT])
    name = body["tools"][0]["function"]["name"]
    assert len(name) == 64
    assert body["messages"][0]["tool_calls"][0]["function"]["name"] == name
    assert known_tools({"tools": [space]})[name] == ("t" * 30, "n" * 50, False)


def test_pictures_in_results_are_shown_by_the_user_after_the_last_result() -> None:
    """A tool's message of chat is text."""
    image = {"type": "input_image", "image_url": DATA}
    seen = [{"type": "input_text", "text": "a cat"}, image]
    messages = chat_fields_of(input=[
        CALL, {**CALL, "call_id": "c2"}, {**RESULT, "output": seen},
        {**RESULT, "call_id": "c2", "output": [image]}, {"role": "user", "content": "?"},
    ])["messages"]  # fmt: skip
    assert [message["role"] for message in messages] == ["assistant", "tool", "tool", "user", "user"]
    shown = [part["type"] for part in messages[3]["content"]]
    assert shown == ["text", "image_url", "text", "image_url"]
    assert messages[3]["content"][2]["text"].endswith("c2:")
    assert messages[1]["content"][0]["text"] == "a cat"
    assert all(part["type"] == "text" for message in messages[1:3] for part in message["content"])


def test_instructions_of_several_parts_are_one_system_message() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    items = [
        {"role": "developer", "content": parts},
        {"role": "system", "content": "c"},
        {"role": "user", "content": "?"},
    ]
    assert chat_fields_of(input=items)["messages"][0] == {"role": "system", "content": "a\n\nb\n\nc"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        *[
            ({"tools": [WEATHER, {"type": kind}]}, "tools[1].type")
            for kind in ("file_search", "code_interpreter", "computer_use_preview", "mcp", "local_shell")
        ],
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [WEATHER, {"type": "web_search"}], "tool_choice": "required"}, "tools[1].type"),
        ({"tools": [{"type": "image_generation"}, WEATHER, {"type": "mcp"}]}, "tools[2].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "namespace"}]}, "tools[0]"),
        ({"tools": [{**SPACE, "tools": [{"type": "mcp"}]}]}, "tools[0].tools[0].type"),
        ({"tools": [WEATHER], "tool_choice": {"type": "web_search_preview"}}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "allowed_tools", "tools": [{}]}}, "tool_choice.tools"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
        ({"input": [{"id": "msg_1"}]}, "input[0]"),
        ({"input": [{"type": "image_generation_call", "id": "ig_1"}]}, "input[0].type"),
        ({"input": [user({"type": "input_image", "file_id": "file-1"})]}, "input[0].content[0].file_id"),
        ({"input": [user({"type": "input_image"})]}, "input[0].content[0].image_url"),
        ({"input": [user({"type": "input_file", "file_id": "file-1"})]}, "input[0].content[0].file_id"),
        ({"input": [user({"type": "input_file", "file_url": "http://a"})]}, "input[0].content[0].file_url"),
        ({"input": [user({"type": "text"})]}, "input[0].content[0].text"),
        ({"input": [user({"type": "hologram"})]}, "input[0].content[0].type"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"messages": []}, "messages"),
        ({"max_tokens": 9}, "max_tokens"),
        ({"tools": [{**WEATHER, "name": []}]}, "tools[0].name"),
        ({"reasoning": {"effort": []}}, "reasoning.effort"),
    ],
)  # fmt: skip
def test_what_chat_has_no_word_for_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        chat_fields_of(**fields)
    assert caught.value.param == param


def test_trimming_takes_reasoning_along_with_what_it_led_to() -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    items: list[dict[str, Any]] = [
        {"role": "user", "content": "old"},
        thought,
        CALL,
        RESULT,
        {"role": "user", "content": "long " * 9},
    ]
    request = responses_request(input=items, instructions="Be brief.")
    plan = ContextPlan(9, 5, drop=frozenset({0, 2, 3}), replace={4: "short"})
    messages = translation.chat(request, plan)["messages"]
    assert messages == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "short"}]
    assert kept(items, frozenset({0})) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("item", "where"),
    [
        ({**RESULT, "output": "long"}, "content"),
        ({**RESULT, "output": [{"type": "input_text", "text": "long"}]}, "content"),
        ({"role": "assistant", "content": [{"type": "output_text", "text": "long"}]}, "content"),
    ],
)
def test_a_shortened_item_says_the_shorter_text(item: dict[str, Any], where: str) -> None:
    plan = ContextPlan(9, 5, replace={0: "short"})
    assert translation.chat(responses_request(input=[item]), plan)["messages"][0][where] == "short"


@pytest.mark.parametrize(
    "content", ["gAAAA", None, 3, "thinking-blocks-1:%%%", "thinking-blocks-1:" + "W10=", pack([{}])]
)
def test_encrypted_content_of_others_is_not_read(content: object) -> None:
    assert unpack(content) == []


def test_errors_have_openais_shape_plain_and_streamed() -> None:
    error = StreamBroken("cut")
    plain = orjson.loads(error_body(error, "req_1"))["error"]
    name, _, data = error_event(error, "req_1").partition(b"\n")
    event = orjson.loads(data.removeprefix(b"data: "))
    assert name == b"event: error"
    assert (event["type"], event["code"], event["error"]) == ("error", "stream_broken", plain)
    assert event["sequence_number"] > 10**6


@pytest.mark.parametrize(
    ("sent", "number"),
    [
        (b'data: {"type":"x","sequence_number":7}\n\n', 8),
        (b'data: {"sequence_number": 7,"delta":"a"}\n\ndata: {"sequence_number": 8,"delta":"b"}\n\n', 9),
        (b'data: {"sequence_number":3,"delta":"say \\"sequence_number\\":9"}\n\n', 4),
        (b": alive\n\n", 2**31 - 1),
    ],
)
def test_an_error_has_the_number_after_the_last_events(sent: bytes, number: int) -> None:
    data = error_event(StreamBroken("cut"), "req_1", sent).partition(b"data: ")[2]
    assert orjson.loads(data)["sequence_number"] == number
