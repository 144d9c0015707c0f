"""What we send to Anthropic against what litellm, an independent translator, would send for the same request."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from gateway.settings.environment import keep_litellm_offline
from tests.dialects.over_anthropic import sent
from tests.dialects.samples import USER

pytestmark = pytest.mark.extras

OLD, NEW = "claude-sonnet-4-5", "claude-sonnet-5"
MARK = {"type": "ephemeral"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"type": "function", "function": {"name": "look", "description": "Looks", "parameters": SCHEMA}}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
PNG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
LINK = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
PDF = {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA"}}


def call(call_id: str, arguments: str = '{"city": "Bilbao"}') -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "look", "arguments": arguments}}


def result(call_id: str, content: Any = "sunny") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def assistant(content: Any = None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


SAME: dict[str, dict[str, Any]] = {
    "smallest": {},
    "limit": {"max_tokens": 7},
    "newer limit": {"max_completion_tokens": 7},
    "stream": {"stream": True},
    "temperature": {"temperature": 0.3},
    "top_p": {"top_p": 0.9},
    "one stop": {"stop": "END"},
    "stops": {"stop": ["a", "b"]},
    "user": {"user": "u-1"},
    "user with an address": {"user": "me@example.com"},
    "system": {"messages": [{"role": "system", "content": "Be brief."}, USER]},
    "marked system": {
        "messages": [{"role": "system", "content": [text("a"), text("b", cache_control=MARK)]}, USER],
    },
    "marked part": {"messages": [{"role": "user", "content": [text("a", cache_control=MARK), text("b")]}]},
    "neighbours": {"messages": [USER, USER, assistant("a"), assistant("b"), USER]},
    "image": {"messages": [{"role": "user", "content": [text("a"), PNG]}]},
    "linked image": {"messages": [{"role": "user", "content": [LINK]}]},
    "document": {"messages": [{"role": "user", "content": [PDF]}]},
    "tool": {"tools": [FUNCTION]},
    "tool wanted": {"tools": [FUNCTION], "tool_choice": "required"},
    "tool by choice": {"tools": [FUNCTION], "tool_choice": "auto"},
    "this tool": {"tools": [FUNCTION], "tool_choice": {"type": "function", "function": {"name": "look"}}},
    "no tool": {"tools": [FUNCTION], "tool_choice": "none"},
    "one at a time": {"tools": [FUNCTION], "tool_choice": "auto", "parallel_tool_calls": False},
    "loop": {"messages": [USER, assistant(tool_calls=[call("a")]), result("a")], "tools": [FUNCTION]},
    "parallel calls": {
        "messages": [USER, assistant("b", tool_calls=[call("a"), call("c", "{}")]), result("c"), result("a")],
        "tools": [FUNCTION],
    },
    "said after a result": {
        "messages": [USER, assistant(tool_calls=[call("a")]), result("a"), USER],
        "tools": [FUNCTION],
    },
    "parts of a result": {
        "messages": [USER, assistant(tool_calls=[call("a")]), result("a", [text("x"), PNG])],
        "tools": [FUNCTION],
    },
    "thoughts": {
        "messages": [USER, assistant("a", thinking_blocks=[THOUGHT], tool_calls=[call("a")]), result("a")],
        "tools": [FUNCTION],
    },
    "effort": {"reasoning_effort": "high", "max_tokens": 9000},
    "small effort": {"reasoning_effort": "low", "max_tokens": 9000},
    "effort of a later model": {"model": NEW, "reasoning_effort": "medium"},
    "form": {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
    "prefix": {"messages": [USER, assistant("The answer is")]},
    "prefix with white space": {"messages": [USER, assistant("The answer is ")]},
}

DIFFERENT: dict[str, tuple[dict[str, Any], str, Any, Any]] = {
    "a system message in the middle is no note in the user's words": (
        {"messages": [USER, {"role": "system", "content": "a"}, assistant("b"), USER]}, "system", [text("a")], None,
    ),
    "too hot is as hot as can be, not refused by the provider": ({"temperature": 1.5}, "temperature", 1.0, 1.5),
    "both ways of sampling at once are one": ({"temperature": 0.2, "top_p": 0.9}, "top_p", None, 0.9),
    "a budget leaves room for an answer": (
        {"reasoning_effort": "high", "max_tokens": 2000}, "thinking",
        {"type": "enabled", "budget_tokens": 1999}, {"type": "enabled", "budget_tokens": 4096},
    ),
    "what is forced to call does not think": (
        {"reasoning_effort": "low", "max_tokens": 9000, "tools": [FUNCTION], "tool_choice": "required"}, "thinking",
        None, {"type": "enabled", "budget_tokens": 1024},
    ),
    "a limit that nobody set leaves room for long answers": ({}, "max_tokens", 32_000, 64_000),
}  # fmt: skip
"""Request → the field, what we send, what litellm sends."""


def oracle(body: dict[str, Any]) -> dict[str, Any]:
    keep_litellm_offline()
    import litellm
    from litellm.utils import get_optional_params

    fields = deepcopy({"model": OLD, "messages": [USER], **body})
    model, messages = fields.pop("model"), fields.pop("messages")
    mapped = get_optional_params(model=model, custom_llm_provider="anthropic", messages=messages, **fields)
    said = litellm.AnthropicConfig().transform_request(
        model=model, messages=messages, optional_params=mapped, litellm_params={}, headers={}
    )
    said.pop("json_mode", None)  # a note to itself
    return normal(dict(said))


def ours(body: dict[str, Any]) -> dict[str, Any]:
    return normal(sent(**{"model": OLD, **body}))


def normal(body: dict[str, Any]) -> dict[str, Any]:
    """Of several ways to say the same, one."""
    if "system" in body:
        body["system"] = as_blocks(body["system"])
    for turn in body["messages"]:
        turn["content"] = [normal_block(block) for block in as_blocks(turn["content"])]
    for tool in body.get("tools", ()):
        if tool.get("type") == "custom":
            del tool["type"]
    if form := body.pop("output_format", None):
        body.setdefault("output_config", {})["format"] = form
    return body


def normal_block(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] == "tool_result":
        block["content"] = as_blocks(block["content"])
    return block


def as_blocks(content: Any) -> list[dict[str, Any]]:
    return [text(content)] if isinstance(content, str) else content


@pytest.mark.parametrize("name", SAME)
def test_the_same_is_sent(name: str) -> None:
    expected, found = oracle(SAME[name]), ours(SAME[name])
    if not {"max_tokens", "max_completion_tokens"} & SAME[name].keys():
        del expected["max_tokens"], found["max_tokens"]
    assert found == expected


@pytest.mark.parametrize("why", DIFFERENT)
def test_what_is_meant_to_differ_does(why: str) -> None:
    body, field, us, them = DIFFERENT[why]
    expected, found = oracle(body), ours(body)
    assert (found.get(field), expected.get(field)) == (us, them)
