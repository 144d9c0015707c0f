"""Values of any kind in any field of a request: it is refused, or said to every backend; nothing else is raised."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from gateway.context.count import Counter
from gateway.context.plan import Contexts
from gateway.dialects.clients import PATHS
from gateway.dialects.registry import translators
from gateway.domain.request import CompletionRequest, Controls, DialectName
from gateway.errors import GatewayError

ODD: tuple[Any, ...] = (None, "x", 1, [], {}, [1], [None], [[]], [{"type": 1}], {"a": 1}, True)
USER = {"role": "user", "content": "hello"}
BACKENDS: tuple[DialectName, ...] = (
    *("openai_chat", "openai_responses", "anthropic_messages"),
    *("bedrock_converse", "gemini_generate", "ollama_chat"),
)
ITEMS = (
    "reasoning", "web_search_call", "function_call", "function_call_output", "custom_tool_call", "tool_search_call",
    "custom_tool_call_output", "tool_search_output", "additional_tools", "computer_call_output", "mcp_call",
)  # fmt: skip
PARTS = ("text", "image_url", "image", "document", "tool_use", "tool_result", "thinking", "file", "refusal")


def items() -> Iterator[dict[str, Any]]:
    fields = ("id", "call_id", "name", "arguments", "input", "output", "summary", "content", "tools", "action")
    for kind in ITEMS:
        base = {"type": kind, "call_id": "c", "name": "n", "arguments": "{}", "input": "i", "output": "o", "tools": []}
        yield {"input": [base]}
        yield from ({"input": [USER, {**base, name: value}]} for name in fields for value in ODD)
    for name in ("text", "reasoning", "tools", "tool_choice", "include", "metadata", "instructions", "user"):
        yield from ({"input": "x", name: value} for value in ODD)


def messages() -> Iterator[dict[str, Any]]:
    base = {
        "text": "x",
        "id": "i",
        "name": "n",
        "input": {},
        "tool_use_id": "i",
        "source": {"type": "text", "data": ""},
    }
    fields = (
        "text",
        "image_url",
        "source",
        "id",
        "name",
        "input",
        "content",
        "tool_use_id",
        "thinking",
        "file",
        "refusal",
    )
    for kind in PARTS:
        for name in fields:
            for value in ODD:
                for role in ("user", "assistant"):
                    yield {"messages": [USER, {"role": role, "content": [{**base, "type": kind, name: value}]}]}
    for name in ("content", "name", "tool_calls", "tool_call_id", "function_call", "thinking_blocks", "audio"):
        for value in ODD:
            yield {"messages": [USER, {"role": "assistant", "content": "x", name: value}]}
            yield {"messages": [USER, {"role": "tool", "tool_call_id": "i", "content": "x", name: value}]}
    for name in ("tools", "tool_choice", "response_format", "stop", "system", "thinking", "output_config", "metadata"):
        yield from ({"messages": [USER], name: value} for value in ODD)


def say(request: CompletionRequest) -> None:
    """As serving does, to a backend of every dialect."""
    Contexts(Counter()).estimate(request).least  # noqa: B018 - worked out when it is asked for
    for backend in BACKENDS:
        for way in translators(request.dialect, (backend,)):
            with contextlib.suppress(GatewayError):
                way.body(request, "m", None, max_output_tokens=3)


@pytest.mark.parametrize(
    ("path", "shapes", "more"),
    [
        ("/v1/responses", items, {}),
        ("/v1/chat/completions", messages, {}),
        ("/v1/messages", messages, {"max_tokens": 5}),
    ],
)
def test_odd_values_are_refused_or_said(path: str, shapes: Any, more: dict[str, Any]) -> None:
    said = 0
    for fields in shapes():
        body = orjson.dumps({"model": "m", **more, **fields})
        try:
            request = PATHS[path].parse(body, "req_1", Controls(), {})
        except GatewayError:
            continue
        try:
            say(request)
        except Exception as error:
            raise AssertionError(f"{path} {body.decode()}") from error
        said += 1
    assert said > 100
