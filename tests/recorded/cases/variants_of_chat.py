"""Chat requests beyond the plain ones, as fields that are added to a question."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

Fields = dict[str, Any]

_USER: Fields = {"role": "user", "content": "Say hello"}
_PARAMETERS: Fields = {"type": "object", "properties": {"query": {"type": "string"}}}
LOOKUP: Fields = {"type": "function", "function": {"name": "lookup", "parameters": _PARAMETERS}}
_OTHER: Fields = {"type": "function", "function": {"name": "other", "description": "Something else."}}
_CUSTOM: Fields = {
    "type": "custom",
    "custom": {
        "name": "shell",
        "description": "Runs a command.",
        "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: WORD"}},
    },
}
_STRICT: Fields = {"type": "function", "function": {"name": "lookup", "strict": True, "parameters": _PARAMETERS}}
_PLACE: Fields = {"type": "approximate", "approximate": {"country": "PE", "city": "Lima"}}
_FORM: Fields = {
    "type": "object",
    "properties": {
        "when": {"type": "string", "format": "date-time"},
        "size": {"type": "integer", "minimum": 1, "description": "How big."},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^a"}, "minItems": 2},
        "either": {"oneOf": [{"type": "string"}, {"type": "null"}]},
        "inner": {"$ref": "#/$defs/inner"},
    },
    "$defs": {"inner": {"type": "object", "properties": {"a": {"type": "number", "multipleOf": 2}}}},
}
PDF = b64encode(b"%PDF-1.4\n%%EOF\n").decode()
TEXT = b64encode(b"What stands in a file.").decode()


def _choice(choice: Any, *tools: Fields) -> Fields:
    return {"tools": list(tools or (LOOKUP, _OTHER)), "tool_choice": choice}


def _shown(*parts: Fields) -> Fields:
    return {"messages": [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, *parts]}]}


def _messages(*messages: Fields) -> Fields:
    return {"messages": [*messages, _USER]}


def _answered(**message: Any) -> Fields:
    return _messages(_USER, {"role": "assistant", **message})


ASKED: dict[str, Fields] = {
    "no tool may be called": _choice("none"),
    "a tool must be called": _choice("required"),
    "one tool must be called": _choice({"type": "function", "function": {"name": "lookup"}}),
    "allowed tools": _choice(
        {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "lookup"}}]},
        }
    ),
    "an unreadable choice": _choice({"type": "whatever"}),
    "one call at a time": {"tools": [LOOKUP], "parallel_tool_calls": False},
    "strict tool": {"tools": [_STRICT]},
    "custom tool": {"tools": [_CUSTOM], "tool_choice": {"type": "custom", "custom": {"name": "shell"}}},
    "custom tool, its result": {
        **_messages(
            _USER,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "call_1", "type": "custom", "custom": {"name": "shell", "input": "ls"}}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "a file"},
        ),
        "tools": [_CUSTOM],
    },
    "functions": {"functions": [LOOKUP["function"]], "function_call": {"name": "lookup"}},
    "functions, a result": {
        **_messages(
            _USER,
            {"role": "assistant", "content": None, "function_call": {"name": "lookup", "arguments": "{}"}},
            {"role": "function", "name": "lookup", "content": "In Peru"},
        ),
        "functions": [LOOKUP["function"]],
    },
    "a tool of Anthropic's": {"tools": [{"name": "lookup", "input_schema": _PARAMETERS}]},
    "a tool that the provider runs": {"tools": [{"type": "web_search"}]},
    "web search": {"web_search_options": {"search_context_size": "low", "user_location": _PLACE}},
    "high effort": {"reasoning_effort": "high"},
    "least effort": {"reasoning_effort": "minimal"},
    "no effort": {"reasoning_effort": "none"},
    "unknown effort": {"reasoning_effort": "gigantic"},
    "thinking of Anthropic's": {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 4000},
    "thinking and little room": {"reasoning_effort": "medium", "max_tokens": 1200},
    "max_tokens": {"max_tokens": 5},
    "schema with what cannot be enforced": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "form", "schema": _FORM}}
    },
    "json object and a system prompt": {
        **_messages({"role": "system", "content": "Be brief."}),
        "response_format": {"type": "json_object"},
    },
    "a schema without a schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "form"}}},
    "developer": _messages({"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}),
    "system midway": _messages(
        _USER, {"role": "assistant", "content": "Hello"}, {"role": "system", "content": "Be brief."}
    ),
    "two questions in a row": _messages(_USER),
    "an answer to begin with": {"messages": [_USER, {"role": "assistant", "content": "Hello, my "}]},
    "an answer in parts": _answered(content=[{"type": "text", "text": "Hello"}]),
    "an answer that refused": _answered(content=None, refusal="I cannot"),
    "an answer with thoughts": _answered(
        content="Hello",
        reasoning_content="Be polite",
        thinking_blocks=[{"type": "thinking", "thinking": "Be polite", "signature": "signed"}],
    ),
    "names": _messages({"role": "user", "name": "ana", "content": "I am Ana"}),
    "cache marks": _shown({"type": "text", "text": "Again", "cache_control": {"type": "ephemeral"}}),
    "image by address": _shown(
        {"type": "image_url", "image_url": {"url": "https://images.example/1.png", "detail": "low"}}
    ),
    "a PDF": _shown({"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}}),
    "a text file": _shown(
        {"type": "file", "file": {"filename": "a.txt", "file_data": f"data:text/plain;base64,{TEXT}"}}
    ),
    "sound": _shown({"type": "input_audio", "input_audio": {"data": TEXT, "format": "wav"}}),
    "a part that nobody knows": _shown({"type": "hologram", "hologram": {}}),
    "settings": {
        "verbosity": "low",
        "store": False,
        "metadata": {"a": "b"},
        "prompt_cache_key": "mine",
        "safety_identifier": "somebody",
        "seed": 7,
        "stop": "END",
        "n": 1,
        "top_k": 5,
    },
    "penalties": {"frequency_penalty": 0.5, "presence_penalty": 0.5, "logit_bias": {"5": -1}},
    "service tier": {"service_tier": "flex"},
    "a personal name": {"user": "ana@example.com", "temperature": 1.5},
    "several stops": {"stop": ["END", "\n\n"]},
    "sound wanted": {"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}},
}
