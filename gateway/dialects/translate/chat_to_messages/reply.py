"""Converts Anthropic's answers to OpenAI's: finish reasons, usage, whole messages."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects import json_splice
from gateway.domain.money.usage import Usage
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
"""Anthropic's stop reason → OpenAI's finish reason. Unknown reasons keep their names. The stop reason of a paused turn
becomes `length`, because chat cannot resume a turn."""

Block = dict[str, Any]


def finish_of(reason: object) -> str:
    """OpenAI's finish reason for Anthropic's stop reason; empty if the answer has no stop reason."""
    return FINISH.get(reason, reason) if type(reason) is str else ""


def stopped_at(event: dict[str, Any]) -> dict[str, str]:
    """The stop sequence that ended the answer, in the field `stop_reason`. vLLM uses this field; OpenAI has no field
    for it."""
    sequence = event.get("stop_sequence")
    return {"stop_reason": sequence} if type(sequence) is str else {}


def refused_because(event: dict[str, Any]) -> str | None:
    """The provider's reason for refusing the answer; None if the provider gave no reason."""
    details = event.get("stop_details")
    explanation = details.get("explanation") if type(details) is dict else None
    return explanation if type(explanation) is str and explanation else None


def chat_usage(usage: Usage) -> dict[str, Any]:
    """An OpenAI usage object. In this format, the prompt tokens include cached tokens, and the completion tokens
    include reasoning."""
    written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
    return {
        "prompt_tokens": usage.all_input,
        "completion_tokens": usage.all_output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": written},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def chat_completion(message: dict[str, Any], usage: Usage | None, created: int, raw: bytes = b"") -> dict[str, Any]:
    """A chat completion from a whole Anthropic message. `raw`: bytes of the message, from which arguments are copied.
    Raises BackendGarbage if `message` is no message."""
    content = message.get("content")
    if message.get("type") != "message" or type(content) is not list or not all(type(each) is dict for each in content):
        raise BackendGarbage("The backend answered with JSON that is not a message.")
    choice = {
        "index": 0,
        "message": _message(message, content, raw),
        "logprobs": None,
        "finish_reason": finish_of(message.get("stop_reason")) or None,
        **stopped_at(message),
    }
    completion = {
        "id": message.get("id") or "",
        "object": "chat.completion",
        "created": created,
        "model": message.get("model") or "",
        "choices": [choice],
    }
    return {**completion, "usage": chat_usage(usage)} if usage else completion


def _message(message: dict[str, Any], blocks: list[Block], raw: bytes) -> dict[str, Any]:
    chat_message: dict[str, Any] = {
        "role": "assistant",
        "content": _joined(blocks, "text"),
        "refusal": refused_because(message),
    }
    if thought := _joined(blocks, "thinking"):
        chat_message["reasoning_content"] = thought
    if thoughts := [kept for block in blocks if (kept := returnable_thinking(block))]:
        chat_message["thinking_blocks"] = thoughts
    uses = [(place, block) for place, block in enumerate(blocks) if block.get("type") == "tool_use"]
    if uses:
        inputs = _inputs(uses, raw)
        chat_message["tool_calls"] = [tool_call(block, value) for (_, block), value in zip(uses, inputs, strict=True)]
    return chat_message


def _joined(blocks: list[Block], kind: str) -> str | None:
    texts = [block[kind] for block in blocks if block.get("type") == kind and type(block.get(kind)) is str]
    return "".join(texts) if texts else None


def returnable_thinking(block: Block) -> Block | None:
    """The thinking block in the form that Anthropic accepts back (signed or redacted). None if Anthropic would reject
    the block."""
    if block.get("type") == "thinking" and block.get("signature"):
        return {"type": "thinking", "thinking": block.get("thinking") or "", "signature": block["signature"]}
    if block.get("type") == "redacted_thinking" and block.get("data"):
        return {"type": "redacted_thinking", "data": block["data"]}
    return None


def _inputs(uses: list[tuple[int, Block]], raw: bytes) -> list[bytes]:
    """The `input` of each tool call as JSON. `uses`: (index, block) of each call. `raw`: the bytes of the message, from
    which the inputs are copied unchanged; may be empty."""
    compact = [orjson.dumps(block.get("input")) for _, block in uses]
    for each in compact:
        # the original bytes contain spaces, or numbers that orjson writes differently
        if raw and raw.find(b'"input":' + each) < 0:
            written = _written(raw)
            return [written[place] for place, _ in uses]
    return compact


def _written(raw: bytes) -> list[bytes]:
    found = []
    content, _ = json_splice.find(raw, "content")[-1]
    for start, _ in json_splice.elements(raw, content):
        spans = [span for name, span in json_splice.members(raw, start) if name == "input"]
        found.append(raw[slice(*spans[-1])] if spans else b"")
    return found


def tool_call(block: Block, raw_input: bytes) -> dict[str, Any]:
    """A `tool_use` block as a function call. `raw_input`: the input of the block as JSON."""
    arguments = raw_input.decode() if raw_input.startswith(b"{") else "{}"
    return {
        "id": block.get("id"),
        "type": "function",
        "function": {"name": block.get("name"), "arguments": arguments},
    }
