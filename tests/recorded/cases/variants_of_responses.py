"""Responses requests beyond the plain ones, as fields that are added to a question."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from tests.recorded.cases.variants_of_chat import PDF, TEXT

Fields = dict[str, Any]

_USER: Fields = {"role": "user", "content": "Say hello"}
_PARAMETERS: Fields = {"type": "object", "properties": {"query": {"type": "string"}}}
_LOOKUP: Fields = {"type": "function", "name": "lookup", "parameters": _PARAMETERS}
_CUSTOM: Fields = {
    "type": "custom",
    "name": "shell",
    "description": "Runs a command.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: WORD"},
}
_SPACE: Fields = {
    "type": "namespace",
    "name": "files",
    "description": "Of files.",
    "tools": [{**_LOOKUP, "name": "find"}],
}
_CALL: Fields = {"type": "function_call", "call_id": "call_1", "name": "lookup", "arguments": "{}"}
_IMAGE = "https://images.example/1.png"
_BLOCKS = b'[{"type":"thinking","thinking":"Be polite","signature":"signed"}]'
_SIGNED = f"thinking-blocks-1:{b64encode(_BLOCKS).decode()}"
"""As the gateway hands an Anthropic model's thinking out in a response."""


def _choice(choice: Any) -> Fields:
    return {"tools": [_LOOKUP, {**_LOOKUP, "name": "other", "strict": True}], "tool_choice": choice}


def _input(*items: Fields) -> Fields:
    return {"input": [*items, _USER]}


def _shown(*parts: Fields) -> Fields:
    return {"input": [{"role": "user", "content": [{"type": "input_text", "text": "What is it?"}, *parts]}]}


def _returned(output: Any) -> Fields:
    return {
        **_input(_USER, _CALL, {"type": "function_call_output", "call_id": "call_1", "output": output}),
        "tools": [_LOOKUP],
    }


ASKED: dict[str, Fields] = {
    "no tool may be called": _choice("none"),
    "a tool must be called": _choice("required"),
    "one tool must be called": _choice({"type": "function", "name": "lookup"}),
    "allowed tools": _choice(
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "lookup"}]}
    ),
    "an unreadable choice": _choice({"type": "whatever"}),
    "one call at a time": {"tools": [_LOOKUP], "parallel_tool_calls": False},
    "custom tool": {"tools": [_CUSTOM], "tool_choice": {"type": "custom", "name": "shell"}},
    "custom tool, its result": {
        **_input(
            _USER,
            {"type": "custom_tool_call", "call_id": "call_1", "name": "shell", "input": "ls"},
            {"type": "custom_tool_call_output", "call_id": "call_1", "output": "a file"},
        ),
        "tools": [_CUSTOM],
    },
    "tools in a namespace": {"tools": [_SPACE], "tool_choice": {"type": "function", "name": "find"}},
    "additional tools": _input({"type": "additional_tools", "role": "developer", "tools": [_LOOKUP]}),
    "a tool that the provider runs": {"tools": [{"type": "web_search"}]},
    "a search that was made": _input({"type": "web_search_call", "id": "ws_1", "status": "completed"}),
    "high effort": {"reasoning": {"effort": "high"}},
    "least effort": {"reasoning": {"effort": "minimal", "summary": "detailed"}},
    "thoughts": _input(
        _USER,
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Be polite"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]},
    ),
    "sealed thoughts": _input(
        _USER,
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"},
        _CALL,
        {"type": "function_call_output", "call_id": "call_1", "output": "In Peru"},
    ),
    "thoughts that another vendor signed": _input(
        _USER,
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": _SIGNED},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]},
    ),
    "sealed thoughts wanted": {"include": ["reasoning.encrypted_content"], "store": False},
    "schema and verbosity": {
        "text": {
            "verbosity": "low",
            "format": {"type": "json_schema", "name": "form", "schema": {**_PARAMETERS, "additionalProperties": False}},
        }
    },
    "system midway": {
        "instructions": "Be brief.",
        **_input(_USER, {"role": "assistant", "content": "Hello"}, {"role": "developer", "content": "In verse."}),
    },
    "two system prompts": {"instructions": "Be brief.", **_input({"role": "system", "content": "In verse."})},
    "an answer that refused": _input(
        _USER, {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot"}]}
    ),
    "two answers in a row": _input(
        _USER, {"role": "assistant", "content": "Hello"}, {"role": "assistant", "content": "you"}
    ),
    "an item by reference": _input({"type": "item_reference", "id": "msg_1"}),
    "an item that nobody knows": _input({"type": "hologram", "id": "h_1"}),
    "image by address": _shown({"type": "input_image", "image_url": _IMAGE, "detail": "low"}),
    "image by id": _shown({"type": "input_image", "file_id": "file_1"}),
    "a PDF": _shown({"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}),
    "a file by address": _shown({"type": "input_file", "file_url": "https://files.example/a.pdf"}),
    "sound": _shown({"type": "input_audio", "input_audio": {"data": TEXT, "format": "wav"}}),
    "a result in parts": _returned([{"type": "input_text", "text": "In Peru"}]),
    "a result that is an image": _returned([{"type": "input_image", "image_url": _IMAGE}]),
    "settings": {
        "metadata": {"a": "b"},
        "prompt_cache_key": "mine",
        "safety_identifier": "somebody",
        "truncation": "auto",
        "max_tool_calls": 3,
        "top_logprobs": 2,
        "stream_options": {"include_obfuscation": False},
    },
    "service tier": {"service_tier": "flex"},
    "a response of nobody": {"previous_response_id": "resp_1"},
}
