"""Tools beyond plain functions, and forms of answers."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.errors import BadRequest
from tests.dialects.over_anthropic import sent, wire
from tests.dialects.samples import USER
from tests.support.requests import chat_request

MARK = {"type": "ephemeral"}
LIMITED = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}


def function(**more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "look", "parameters": LIMITED, **more}}


def test_a_strict_function_has_a_schema_that_can_be_enforced_and_another_its_own() -> None:
    strict, free = sent(tools=[function(strict=True), function(strict=False)])["tools"]
    assert strict["strict"] is True
    assert strict["input_schema"]["additionalProperties"] is False
    assert strict["input_schema"]["properties"]["n"] == {"type": "integer", "description": '{"minimum":1}'}
    assert free == {"name": "look", "input_schema": LIMITED}


@pytest.mark.parametrize(
    ("parameters", "schema"),
    [
        (None, {"type": "object", "properties": {}}),
        ({}, {"type": "object", "properties": {}}),
        ({"properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
    ],
)
def test_a_schema_says_that_it_is_an_object(parameters: Any, schema: Any) -> None:
    assert sent(tools=[function(parameters=parameters)])["tools"][0]["input_schema"] == schema


def test_marks_and_tools_written_anthropics_way_are_kept() -> None:
    own = {"name": "look", "input_schema": LIMITED, "cache_control": MARK}
    tools = [{**function(), "cache_control": MARK}, function(cache_control=MARK), own]
    assert sent(tools=tools)["tools"] == [own, own, own]


def test_searching_the_web_is_a_tool_of_anthropics() -> None:
    place = {"type": "approximate", "approximate": {"city": "Bilbao", "country": "ES", "region": ""}}
    assert sent(web_search_options={"search_context_size": "low", "user_location": place})["tools"] == [
        {
            "type": "web_search_20250305",
            "name": "web_search",
            "user_location": {"type": "approximate", "city": "Bilbao", "country": "ES"},
        }
    ]
    assert sent(web_search_options={}, tools=[function()])["tools"][1]["name"] == "web_search"


@pytest.mark.parametrize(
    ("messages", "system"),
    [
        ([USER], "Answer with one JSON object"),
        ([{"role": "system", "content": "Be brief."}, USER], "Be brief.|Answer with one JSON object"),
    ],
)
def test_any_json_at_all_is_asked_for_in_words(messages: list[Any], system: str) -> None:
    body = sent(messages=messages, response_format={"type": "json_object"})
    blocks = [body["system"]] if type(body["system"]) is str else [block["text"] for block in body["system"]]
    for block, begins in zip(blocks, system.split("|"), strict=True):
        assert block.startswith(begins)
    assert "output_config" not in body


def test_a_form_and_an_effort_stand_together() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": LIMITED}}
    config = sent(model="claude-sonnet-5", response_format=form, reasoning_effort="low")["output_config"]
    assert config["effort"] == "low"
    assert config["format"]["schema"]["additionalProperties"] is False


@pytest.mark.parametrize("user", ["me@example.com", "+34 600 123 456"])
def test_who_the_user_really_is_is_not_told(user: str) -> None:
    assert "metadata" not in sent(user=user)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}}, "modalities"),
        ({"moderation": {"model": "omni"}}, "moderation"),
        ({"tools": [{"type": "custom", "name": "x"}]}, "tools[0]"),
        ({"functions": [{"name": "f"}], "function_call": "perhaps"}, "function_call"),
        ({"tools": [function()], "tool_choice": {"type": "custom", "custom": {"name": "x"}}}, "tool_choice"),
    ],
)
def test_what_has_no_equivalent_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        wire.body(chat_request(**fields), "claude", None)
    assert caught.value.param == param
