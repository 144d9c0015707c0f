"""What Anthropic answers, in OpenAI's words: reasons, usage, a whole message."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects.usage import detail, token_count
from gateway.domain.usage import Usage
from gateway.errors import BackendGarbage

FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
    "refusal": "content_filter",
}
"""A reason invented tomorrow keeps its own name."""


def finish_of(reason: object) -> str:
    return FINISH.get(reason, reason) if type(reason) is str else ""


def messages_usage(value: object) -> Usage | None:
    """None when absent or garbage; an empty prompt is garbage, for there is none."""
    if type(value) is not dict:
        return None
    try:
        return _messages_usage(value)
    except ValueError:
        return None


def _messages_usage(usage: dict[str, object]) -> Usage | None:
    """Anthropic's classes are disjoint already; only thinking is a part of the output."""
    fresh, output = token_count(usage.get("input_tokens")), token_count(usage.get("output_tokens"))
    read = token_count(usage.get("cache_read_input_tokens"))
    written = token_count(usage.get("cache_creation_input_tokens"))
    written_1h = detail(usage, "cache_creation", "ephemeral_1h_input_tokens")
    thinking = detail(usage, "output_tokens_details", "thinking_tokens")
    if fresh + read + written == 0 or written_1h > written or thinking > output:
        return None
    return Usage(
        input_tokens=fresh,
        cached_tokens=read,
        cache_write_5m_tokens=written - written_1h,
        cache_write_1h_tokens=written_1h,
        output_tokens=output - thinking,
        reasoning_tokens=thinking,
    )


def chat_usage(usage: Usage) -> dict[str, Any]:
    """An OpenAI usage object, whose prompt includes what was cached and whose completion includes reasoning."""
    written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
    return {
        "prompt_tokens": usage.all_input,
        "completion_tokens": usage.all_output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": written},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def chat_completion(message: dict[str, Any], usage: Usage | None, created: int) -> dict[str, Any]:
    """A chat completion from a whole Anthropic message. Raises BackendGarbage when it is none."""
    content = message.get("content")
    if message.get("type") != "message" or type(content) is not list:
        raise BackendGarbage("The backend answered with JSON that is not a message.")
    blocks = [block for block in content if type(block) is dict]
    said: dict[str, Any] = {"role": "assistant", "content": _joined(blocks, "text"), "refusal": None}
    if thought := _joined(blocks, "thinking"):
        said["reasoning_content"] = thought
    if calls := [tool_call(block) for block in blocks if block.get("type") == "tool_use"]:
        said["tool_calls"] = calls
    choice = {
        "index": 0,
        "message": said,
        "logprobs": None,
        "finish_reason": finish_of(message.get("stop_reason")) or None,
    }
    completion = {
        "id": message.get("id"),
        "object": "chat.completion",
        "created": created,
        "model": message.get("model"),
        "choices": [choice],
    }
    return {**completion, "usage": chat_usage(usage)} if usage else completion


def _joined(blocks: list[dict[str, Any]], kind: str) -> str | None:
    texts = [block[kind] for block in blocks if block.get("type") == kind and type(block.get(kind)) is str]
    return "".join(texts) if texts else None


def tool_call(block: dict[str, Any]) -> dict[str, Any]:
    """A `tool_use` block as a call of a function."""
    arguments = orjson.dumps(block.get("input") or {}).decode()
    return {
        "id": block.get("id"),
        "type": "function",
        "function": {"name": block.get("name"), "arguments": arguments},
    }
