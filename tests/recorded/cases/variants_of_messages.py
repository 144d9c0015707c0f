"""Messages requests beyond the plain ones, as fields that are added to a question."""

from __future__ import annotations

from typing import Any

from tests.recorded.cases.variants_of_chat import PDF

Fields = dict[str, Any]

_USER: Fields = {"role": "user", "content": "Say hello"}
_SCHEMA: Fields = {"type": "object", "properties": {"query": {"type": "string"}}}
_LOOKUP: Fields = {"name": "lookup", "input_schema": _SCHEMA}
_MARK: Fields = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
_IMAGE: Fields = {"type": "image", "source": {"type": "url", "url": "https://images.example/1.png"}}


def _choice(**choice: Any) -> Fields:
    return {"tools": [_LOOKUP, {**_LOOKUP, "name": "other", "strict": True}], "tool_choice": choice}


def _messages(*messages: Fields) -> Fields:
    return {"messages": [*messages, _USER]}


def _answered(*blocks: Fields) -> Fields:
    return _messages(_USER, {"role": "assistant", "content": list(blocks)})


def _shown(*blocks: Fields) -> Fields:
    return {"messages": [{"role": "user", "content": [*blocks, {"type": "text", "text": "What is it?"}]}]}


def _returned(**result: Any) -> Fields:
    call = {"type": "tool_use", "id": "toolu_1", "name": "lookup", "input": {"query": "Lima"}}
    block = {"type": "tool_result", "tool_use_id": "toolu_1", **result}
    said = [_USER, {"role": "assistant", "content": [call]}, {"role": "user", "content": [block]}]
    return {"messages": said, "tools": [_LOOKUP]}


def _document(**source: Any) -> Fields:
    return _shown({"type": "document", "title": "A paper", "source": source})


ASKED: dict[str, Fields] = {
    "no tool may be called": _choice(type="none"),
    "one tool must be called": _choice(type="tool", name="lookup"),
    "one call at a time": _choice(type="auto", disable_parallel_tool_use=True),
    "an unreadable choice": _choice(type="whatever"),
    "custom tool": {"tools": [{"type": "custom", **_LOOKUP, "description": "Looks up.", **_MARK}]},
    "a tool that the provider runs": {"tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 2}]},
    "a tool that the client runs": {"tools": [{"type": "bash_20250124", "name": "bash"}]},
    "thoughts": _answered(
        {"type": "thinking", "thinking": "Be polite", "signature": "signed"}, {"type": "text", "text": "Hello"}
    ),
    "sealed thoughts": _answered({"type": "redacted_thinking", "data": "sealed"}, {"type": "text", "text": "Hello"}),
    "adaptive thinking": {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}, "max_tokens": 3000},
    "no thinking": {"thinking": {"type": "disabled"}},
    "effort": {"output_config": {"effort": "high"}},
    "output_format": {"output_format": {"type": "json_schema", "schema": {**_SCHEMA, "additionalProperties": False}}},
    "a result in parts": _returned(content=[{"type": "text", "text": "In Peru"}]),
    "a result that is an image": _returned(content=[{"type": "text", "text": "Here"}, _IMAGE]),
    "a result that failed": _returned(content="No such city", is_error=True),
    "a result without content": _returned(),
    "image by address": _shown(_IMAGE),
    "a PDF": _document(type="base64", media_type="application/pdf", data=PDF),
    "a document of text": _document(type="text", media_type="text/plain", data="What stands in it."),
    "a document by address": _document(type="url", url="https://files.example/a.pdf"),
    "a document in parts": _document(type="content", content=[{"type": "text", "text": "In parts."}]),
    "a search result": _shown(
        {
            "type": "search_result",
            "source": "https://a.example",
            "title": "A",
            "content": [{"type": "text", "text": "B"}],
        }
    ),
    "system prompt as a string": {"system": "Be brief."},
    "system prompt with marks": {
        "system": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief.", **_MARK}]
    },
    "an answer to begin with": {"messages": [_USER, {"role": "assistant", "content": "Hello, my "}]},
    "two questions in a row": _messages(_USER),
    "settings": {"top_p": 0.9, "top_k": 5, "stop_sequences": ["END"], "metadata": {"user_id": "somebody"}},
    "service tier": {"service_tier": "standard_only"},
    "speed": {"speed": "fast"},
    "where it runs": {"inference_geo": "us"},
    "a block that nobody knows": _shown({"type": "hologram", "hologram": {}}),
}
