"""Anthropic's requests and answers in OpenAI's words."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from anthropic.types import Message
from openai.types.chat import CompletionCreateParams
from pydantic import TypeAdapter

from gateway.dialects.translate.messages_to_chat.tools import short
from gateway.dialects.translate.messages_to_chat.translator import MessagesToChat
from gateway.domain.body_scan import UNSIGNED
from gateway.domain.money.usage import Usage
from gateway.domain.routing.route import ContextPlan
from gateway.errors import BadRequest
from tests.dialects.messages_samples import PNG, TOOL, strict
from tests.dialects.samples import USER
from tests.support.requests import messages_request

translation = MessagesToChat()
PARAMS: TypeAdapter[Any] = TypeAdapter(CompletionCreateParams)
CACHED = {"type": "ephemeral"}


def chat(plan: ContextPlan | None = None, **fields: Any) -> dict[str, Any]:
    said = translation.chat(messages_request(**fields), plan)
    PARAMS.validate_python(said)
    return said


def chat_of(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = chat(messages=list(messages))["messages"]
    return found


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def use(call: str, given: dict[str, Any], name: str = "weather") -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "input": given}


def result(call: str, content: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": content, **more}


# -- fields ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, {"model": "auto", "messages": [USER], "max_completion_tokens": 100}),
        ({"stream": True}, {"stream": True}),
        ({"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "top_p": 0.9}),
        ({"stop_sequences": ["a", "b"]}, {"stop": ["a", "b"]}),
        ({"metadata": {"user_id": "u-1"}}, {"user": "u-1"}),
        ({"system": "Be brief."}, {"messages": [{"role": "system", "content": "Be brief."}, USER]}),
        ({"system": [text("Be brief.")]}, {"messages": [{"role": "system", "content": "Be brief."}, USER]}),
        ({"output_config": {"effort": "low"}}, {"reasoning_effort": "low"}),
        ({"output_config": {"effort": "max"}, "thinking": {"type": "adaptive"}}, {"reasoning_effort": "high"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"reasoning_effort": "low"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 4000}}, {"reasoning_effort": "medium"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 32000}}, {"reasoning_effort": "high"}),
    ],
)
def test_fields_have_a_counterpart(fields: dict[str, Any], said: dict[str, Any]) -> None:
    assert chat(**fields).items() >= said.items()


@pytest.mark.parametrize(
    "fields",
    [
        {"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}},
        {"thinking": {"type": "adaptive"}},
        {"top_k": 5, "service_tier": "auto", "cache_control": CACHED},
        {"invented_tomorrow": {"a": 1}, "context_management": {"edits": []}, "container": None, "stop_sequences": []},
        {"tool_choice": {"type": "auto"}, "tools": []},
    ],
)
def test_hints_and_fields_nobody_has_heard_of_are_left_out_and_never_refused(fields: dict[str, Any]) -> None:
    assert chat(**fields) == chat()


def test_the_marks_of_the_prompt_cache_come_along() -> None:
    system = [text("a"), text("b", cache_control=CACHED)]
    said = chat(
        system=system, messages=[user(text("c", cache_control=CACHED))], tools=[{**TOOL, "cache_control": CACHED}]
    )
    assert said["messages"][0]["content"] == system
    assert said["messages"][1]["content"] == [text("c", cache_control=CACHED)]
    assert said["tools"][0]["cache_control"] == CACHED


def test_a_user_whose_name_is_too_long_for_openai_stays_one_user() -> None:
    one, same, other = (chat(metadata={"user_id": name * 100})["user"] for name in ("a", "a", "b"))
    assert one == same != other
    assert len(one) == 64


def test_a_schema_is_strict_where_openai_can_be() -> None:
    closed = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    optional = {**closed, "required": []}
    for schema, is_strict in [(closed, True), (optional, False), ({"type": "array", "items": optional}, False)]:
        form = {"type": "json_schema", "schema": schema}
        for fields in ({"output_config": {"format": form}}, {"output_format": form}):
            said = chat(**fields)["response_format"]["json_schema"]
            assert (said["schema"], said["strict"]) == (schema, is_strict)
            assert "json_schema" in messages_request(**fields).needs


# -- tools -------------------------------------------------------------------------------------------------------------


def test_tools_become_functions() -> None:
    said = chat(tools=[{**TOOL, "type": "custom", "strict": True}, {"name": "now", "input_schema": {"type": "object"}}])
    assert said["tools"] == [
        {"type": "function", "function": {
            "name": "weather", "description": "Of a city.", "parameters": TOOL["input_schema"], "strict": True}},
        {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}},
    ]  # fmt: skip
    assert "tool_choice" not in said


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "tool", "name": "weather"}, {"tool_choice": {"type": "function", "function": {"name": "weather"}}}),
        ({"type": "any", "disable_parallel_tool_use": True}, {"tool_choice": "required", "parallel_tool_calls": False}),
    ],
)
def test_choices_of_tools(choice: dict[str, Any], said: dict[str, Any]) -> None:
    found = chat(tools=[TOOL], tool_choice=choice)
    assert {name: found[name] for name in ("tool_choice", "parallel_tool_calls") if name in found} == said


def test_names_that_are_too_long_for_openai_are_cut_and_come_back() -> None:
    names = ["mcp__" + "x" * 80 + end for end in ("_one", "_two")]
    fields: Any = {
        "tools": [{**TOOL, "name": name} for name in names],
        "tool_choice": {"type": "tool", "name": names[0]},
    }
    request = messages_request(**fields, messages=[USER, assistant(use("t", {}, names[1])), user(result("t", "ok"))])
    said = translation.chat(request, None)
    cut = [tool["function"]["name"] for tool in said["tools"]]
    assert len(set(cut)) == 2
    assert max(map(len, cut)) == 64
    assert said["tool_choice"]["function"]["name"] == cut[0]
    assert said["messages"][1]["tool_calls"][0]["function"]["name"] == cut[1] == short(names[1])
    answer = completion(tool_calls=[{"id": "c", "function": {"name": cut[1], "arguments": "{}"}}])
    assert orjson.loads(translation.plain(request, answer, None))["content"][0]["name"] == names[1]


# -- messages ----------------------------------------------------------------------------------------------------------


def test_calls_and_results_of_a_tool_loop() -> None:
    said = chat_of(
        USER,
        assistant(text("Let me see."), use("toolu_1", {"city": "Bilbao"}), use("toolu_2", {})),
        user(result("toolu_1", "17 °C"), result("toolu_2", [text("a"), text("b")]), text("And now?")),
    )
    assert said[1:] == [
        {"role": "assistant", "content": "Let me see.", "tool_calls": [
            {"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Bilbao"}'}},
            {"id": "toolu_2", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "toolu_1", "content": "17 °C"},
        {"role": "tool", "tool_call_id": "toolu_2", "content": "a\nb"},
        {"role": "user", "content": "And now?"},
    ]  # fmt: skip


def test_a_result_says_that_it_is_an_error_and_shows_its_images_beside() -> None:
    image = {"type": "image", "source": PNG}
    said = chat_of(
        USER,
        assistant(use("t1", {}), use("t2", {}), use("t3", {})),
        user(result("t1", "no", is_error=True), result("t2", [text("seen"), image]), result("t3")),
    )
    assert said[1]["content"] is None
    assert [one.get("tool_call_id") for one in said[2:]] == ["t1", "t2", "t3", None]
    assert said[2]["content"] == "Error:\nno"
    assert said[3]["content"].startswith("seen\n")
    assert said[4]["content"] == ""
    assert said[5]["content"][1] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    assert "t2" in said[5]["content"][0]["text"]


def test_images_and_documents() -> None:
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}
    (said,) = chat_of(
        user(
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            {"type": "document", "source": pdf, "title": "a.pdf", "cache_control": CACHED},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "plain"}, "title": "T"},
            {"type": "document", "source": {"type": "content", "content": [text("inner")]}, "context": "C"},
            {"type": "search_result", "title": "S", "source": "https://s", "content": [text("found")]},
        )
    )
    assert said["content"] == [
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
         "cache_control": CACHED},
        text("T"), text("plain"), text("C"), text("inner"), text("S"), text("https://s"), text("found"),
    ]  # fmt: skip


def test_thoughts_go_back_to_whom_they_came_from() -> None:
    signed = {"type": "thinking", "thinking": "so", "signature": "EqQB"}
    hidden = {"type": "redacted_thinking", "data": "xyz"}
    ours = {"type": "thinking", "thinking": "hm", "signature": UNSIGNED}
    said = chat_of(
        USER, assistant(signed, hidden, text("yes")), USER, assistant(ours, text("no")), USER, assistant(ours)
    )
    assert said[1] == {"role": "assistant", "content": "yes", "thinking_blocks": [signed, hidden]}
    assert said[3] == {"role": "assistant", "content": "no", "reasoning_content": "hm"}
    assert said[5] == {"role": "assistant", "content": "", "reasoning_content": "hm"}


def test_a_system_message_among_the_others_stays_in_its_place() -> None:
    said = chat_of(USER, {"role": "system", "content": [text("Now be brief.")]}, USER)
    assert said[1] == {"role": "system", "content": "Now be brief."}


def test_a_plan_leaves_turns_out_and_shortens_others() -> None:
    plan = ContextPlan(9, 5, drop=frozenset({0}), replace={2: "[…]"})
    said = chat(plan, system="S", messages=[USER, assistant(text("long")), user(text("longer")), USER])["messages"]
    assert [one["content"] for one in said] == ["S", "long", "[…]", "hello"]


FIRST = "messages[0].content[0]"
"""Where the only block of the cases below is."""


@pytest.mark.parametrize("choice", [{}, {"tool_choice": {"type": "auto"}}])
def test_a_hosted_search_beside_the_clients_own_tools_is_left_out(choice: dict[str, Any]) -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    assert len(chat(tools=[search, TOOL], **choice)["tools"]) == 1


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [TOOL, {"type": "bash_20250124", "name": "bash"}]}, "tools[1]"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]"),
        (
            {"tools": [TOOL, {"type": "web_search_20250305", "name": "web_search"}], "tool_choice": {"type": "any"}},
            "tools[1]",
        ),
        ({"mcp_servers": [{"type": "url", "url": "https://example.com", "name": "x"}]}, "mcp_servers"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0]"),
        ({"tools": [7]}, "tools[0]"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": ["any"]}}, "tool_choice"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"output_config": {"format": {"type": "json_schema", "schema": 7}}}, "output_config.format.schema"),
        ({"messages": [assistant({**use("t", {}), "input": "x"})]}, FIRST),
        ({"messages": [assistant({"type": "server_tool_use", "id": "t"})]}, FIRST),
        ({"messages": [user(result("t", [{"type": "tool_reference"}]))]}, f"{FIRST}.content[0]"),
        ({"messages": [user({"type": "image", "source": {"type": "file", "file_id": "f"}})]}, f"{FIRST}.source"),
        ({"messages": [user({"type": "image"})]}, f"{FIRST}.source"),
        ({"messages": [user({"type": "image", "source": {"type": "base64"}})]}, f"{FIRST}.source"),
        ({"messages": [user({"type": "document", "source": {"type": "url"}})]}, f"{FIRST}.source"),
        ({"messages": [user({"type": "document", "citations": {"enabled": True}})]}, f"{FIRST}.citations"),
        (
            {"messages": [user({"type": "document", "source": {"type": "content", "content": [7]}})]},
            f"{FIRST}.source.content[0]",
        ),
    ],
)
def test_what_chat_cannot_say_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        translation.chat(messages_request(**fields), None)
    assert caught.value.param == param


# -- answers -----------------------------------------------------------------------------------------------------------


def completion(finish: str | None = "stop", choice: dict[str, Any] | None = None, **message: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": None, **message}
    choices = [{"index": 0, "message": said, "finish_reason": finish, **(choice or {})}]
    return {"id": "chatcmpl-7", "object": "chat.completion", "created": 1, "model": "gpt", "choices": choices}


def message(answer: dict[str, Any], usage: Usage | None = None, **fields: Any) -> Message:
    found = strict(Message, translation.plain(messages_request(**fields), answer, usage))
    assert isinstance(found, Message)
    return found


THINKING = {"type": "enabled", "budget_tokens": 1024}


def test_an_answer_in_anthropics_words() -> None:
    usage = Usage(10, 4, 2, 1, output_tokens=5, reasoning_tokens=3)
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"a": [1.5]}'}}
    said = message(
        completion("tool_calls", content="Hi", reasoning_content="hm", tool_calls=[call]), usage, thinking=THINKING
    )
    assert (said.id, said.model, said.stop_reason, said.stop_sequence) == ("msg_7", "gpt", "tool_use", None)
    assert [block.type for block in said.content] == ["thinking", "text", "tool_use"]
    assert said.content[2].model_dump(exclude_none=True) == use("call_1", {"a": [1.5]})
    assert (said.usage.input_tokens, said.usage.cache_read_input_tokens, said.usage.cache_creation_input_tokens) == (
        10,
        4,
        3,
    )
    assert said.usage.output_tokens == 8
    assert said.usage.output_tokens_details is not None
    assert said.usage.output_tokens_details.thinking_tokens == 3


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "end_turn"), ("length", "max_tokens"), ("tool_calls", "tool_use"), ("content_filter", "refusal"),
        ("function_call", "tool_use"), (None, "end_turn"), ("eos", "end_turn"),
    ],
)  # fmt: skip
def test_reasons(finish: str | None, reason: str) -> None:
    assert message(completion(finish, content="x")).stop_reason == reason


def test_a_call_is_reason_enough_and_a_refusal_too() -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
    assert message(completion("stop", tool_calls=[call])).stop_reason == "tool_use"
    refused = message(completion("stop", refusal="I won't."))
    assert (refused.stop_reason, refused.content[0].model_dump()["text"]) == ("refusal", "I won't.")


def test_the_stop_sequence_that_was_met_is_told_if_the_backend_tells() -> None:
    told = completion("stop", {"stop_reason": "END"}, content="x")
    said = message(told, stop_sequences=["END"])
    assert (said.stop_reason, said.stop_sequence) == ("stop_sequence", "END")
    assert message(told).stop_reason == "end_turn"
    assert (
        message(completion("stop", {"stop_reason": 151643}, content="x"), stop_sequences=["END"]).stop_reason
        == "end_turn"
    )


def test_thoughts_are_shown_to_who_asked_for_them() -> None:
    answer = completion(content="Hi", reasoning_content="hm")
    for unseen in (None, {"type": "disabled"}, {"type": "adaptive", "display": "omitted"}):
        assert [block.type for block in message(answer, thinking=unseen).content] == ["text"]
    for seen in (THINKING, {"type": "adaptive"}):
        first = message(answer, thinking=seen).content[0]
        assert first.model_dump() == {"type": "thinking", "thinking": "hm", "signature": UNSIGNED}
    blocks = [{"type": "thinking", "thinking": "a", "signature": "s"}, {"type": "redacted_thinking", "data": "d"}]
    signed = message(completion(content="Hi", reasoning_content="a", thinking_blocks=blocks), thinking=THINKING)
    assert [block.model_dump() for block in signed.content[:2]] == blocks


@pytest.mark.parametrize("arguments", ["", "{", "[1]", "null", None, 7, {"a": 1}])
def test_arguments_that_are_no_object_do_no_harm(arguments: Any) -> None:
    said = message(completion("tool_calls", tool_calls=[{"function": {"name": "f", "arguments": arguments}}]))
    block = said.content[0].model_dump()
    assert block["input"] == ({"a": 1} if type(arguments) is dict else {})
    assert block["id"].startswith("toolu_")


@pytest.mark.parametrize(
    "odd",
    [
        {"tool_calls": 7}, {"tool_calls": [7, {}]}, {"tool_calls": [{"function": 7}]}, {"content": 7},
        {"content": [{"type": "text", "text": "x"}, 7]}, {"thinking_blocks": [7]}, {"reasoning_content": {}},
        {"tool_calls": [{"id": 7, "function": {"name": ["x"]}}]},
    ],
)  # fmt: skip
def test_whatever_a_backend_says_becomes_a_message(odd: dict[str, Any]) -> None:
    message(completion(**odd), thinking=THINKING)


def test_without_usage_the_estimate_counts() -> None:
    request = messages_request()
    request.estimated_tokens = 42
    said = orjson.loads(translation.plain(request, completion(content="word " * 8), None))
    assert said["usage"]["input_tokens"] == 42
    assert said["usage"]["output_tokens"] == 10
