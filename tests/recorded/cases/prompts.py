"""What clients ask in each situation, in the fields of each dialect, without `model` and `stream`."""

from __future__ import annotations

from typing import Any

from tests.recorded.case import Spoken

Fields = dict[str, Any]

CLIENT_PATHS: dict[Spoken, str] = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "completions": "/v1/completions",
}
CLIENTS = tuple(CLIENT_PATHS)

_SCHEMA: Fields = {
    "type": "object",
    "properties": {"query": {"type": "string"}},
    "required": ["query"],
    "additionalProperties": False,
}
_CITY: Fields = {
    "type": "object",
    "properties": {"city": {"type": "string", "minLength": 2}},
    "required": ["city"],
    "additionalProperties": False,
}
_IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg=="
_ASKED = '{"query": "Lima"}'
_USER: Fields = {"role": "user", "content": "Say hello"}


def fields(client: Spoken, situation: str) -> Fields:
    """The body of a request; a situation that needs nothing of its own in the request is a plain question."""
    made = {"chat": _chat, "responses": _responses, "messages": _messages, "completions": _completions}[client]
    return made(situation)


def _chat(situation: str) -> Fields:
    return {"messages": [_USER]} | _CHAT.get(situation, {})


_CHAT_TOOL: Fields = {
    "type": "function",
    "function": {"name": "lookup", "description": "Looks a city up.", "parameters": _SCHEMA},
}
_CHAT: dict[str, Fields] = {
    "text": {
        "messages": [{"role": "system", "content": "Be brief."}, _USER],
        "temperature": 0.5,
        "top_p": 0.9,
        "user": "somebody",
    },
    "tool": {"tools": [_CHAT_TOOL], "tool_choice": "auto"},
    "two calls": {"tools": [_CHAT_TOOL], "tool_choice": "required", "parallel_tool_calls": True},
    "tool result": {
        "messages": [
            _USER,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "lookup", "arguments": _ASKED}}
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "It is in Peru"},
        ],
        "tools": [_CHAT_TOOL],
    },
    "reasoning": {"reasoning_effort": "low"},
    "schema": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "place", "strict": True, "schema": _CITY}}
    },
    "json object": {"response_format": {"type": "json_object"}},
    "choices": {"n": 2},
    "length": {"max_completion_tokens": 2},
    "stop": {"stop": ["END"]},
    "logprobs": {"logprobs": True, "top_logprobs": 0},
    "image": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is it?"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_IMAGE}"}},
                ],
            }
        ]
    },
    "counted": {"stream_options": {"include_usage": True}},
    "unknown field": {"brand_new_field": {"deep": [1, 2.50, None]}, "seed": 7},
}


def _responses(situation: str) -> Fields:
    return {"input": "Say hello"} | _RESPONSES.get(situation, {})


_RESPONSES_TOOL: Fields = {
    "type": "function",
    "name": "lookup",
    "description": "Looks a city up.",
    "parameters": _SCHEMA,
    "strict": False,
}
_RESPONSES: dict[str, Fields] = {
    "text": {"instructions": "Be brief.", "input": [_USER], "temperature": 0.5, "top_p": 0.9, "user": "somebody"},
    "tool": {"tools": [_RESPONSES_TOOL], "tool_choice": "auto"},
    "two calls": {"tools": [_RESPONSES_TOOL], "tool_choice": "required", "parallel_tool_calls": True},
    "tool result": {
        "input": [
            _USER,
            {"type": "function_call", "call_id": "call_1", "name": "lookup", "arguments": _ASKED},
            {"type": "function_call_output", "call_id": "call_1", "output": "It is in Peru"},
        ],
        "tools": [_RESPONSES_TOOL],
    },
    "reasoning": {"reasoning": {"effort": "low", "summary": "auto"}},
    "sealed reasoning": {"reasoning": {"effort": "low"}, "include": ["reasoning.encrypted_content"]},
    "schema": {"text": {"format": {"type": "json_schema", "name": "place", "strict": True, "schema": _CITY}}},
    "json object": {"text": {"format": {"type": "json_object"}}},
    "length": {"max_output_tokens": 2},
    "logprobs": {"include": ["message.output_text.logprobs"], "top_logprobs": 0},
    "image": {
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "What is it?"},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{_IMAGE}"},
                ],
            }
        ]
    },
    "unknown field": {"brand_new_field": {"deep": [1, 2.50, None]}, "metadata": {"a": "b"}},
}


def _messages(situation: str) -> Fields:
    return {"max_tokens": 100, "messages": [_USER]} | _MESSAGES.get(situation, {})


_MESSAGES_TOOL: Fields = {"name": "lookup", "description": "Looks a city up.", "input_schema": _SCHEMA}
_MESSAGES: dict[str, Fields] = {
    "text": {
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "temperature": 0.5,
        "metadata": {"user_id": "somebody"},
    },
    "tool": {"tools": [_MESSAGES_TOOL], "tool_choice": {"type": "auto"}},
    "two calls": {"tools": [_MESSAGES_TOOL], "tool_choice": {"type": "any"}},
    "tool result": {
        "messages": [
            _USER,
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "toolu_1", "name": "lookup", "input": {"query": "Lima"}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "It is in Peru"}],
            },
        ],
        "tools": [_MESSAGES_TOOL],
    },
    "reasoning": {"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1024}},
    "schema": {"output_config": {"format": {"type": "json_schema", "schema": _CITY}}},
    "length": {"max_tokens": 2},
    "stop": {"stop_sequences": ["END"]},
    "image": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _IMAGE}},
                    {"type": "text", "text": "What is it?"},
                ],
            }
        ]
    },
    "unknown field": {"brand_new_field": {"deep": [1, 2.50, None]}, "top_k": 5},
}


def _completions(situation: str) -> Fields:
    return {"prompt": "Say hello"} | _COMPLETIONS.get(situation, {})


_COMPLETIONS: dict[str, Fields] = {
    "text": {"temperature": 0.5, "top_p": 0.9, "user": "somebody"},
    "choices": {"n": 2},
    "prompts": {"prompt": ["Say hello", "Say goodbye"]},
    "tokens": {"prompt": [9906, 1917]},
    "echo": {"echo": True},
    "length": {"max_tokens": 2},
    "stop": {"stop": ["END"]},
    "logprobs": {"logprobs": 1},
    "counted": {"stream_options": {"include_usage": True}},
    "unknown field": {"brand_new_field": {"deep": [1, 2.50, None]}, "seed": 7},
}
