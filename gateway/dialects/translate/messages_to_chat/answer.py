"""Writes a chat completion as an Anthropic message: blocks, stop reason, usage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from gateway.dialects.anthropic_messages import thinking
from gateway.dialects.openai_chat.message import generated_text
from gateway.dialects.translate.messages_to_chat.tools import long_names
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest

REFUSED = "refusal"

_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": REFUSED,
}
_CHARACTERS_PER_TOKEN = 4


def message(request: CompletionRequest, completion: dict[str, Any], usage: Usage | None) -> dict[str, Any]:
    """The first choice of `completion`; clients of this dialect cannot ask for more."""
    choice = completion["choices"][0]
    said = choice["message"]
    content = list(_blocks(request, said))
    calls = any(block["type"] == "tool_use" for block in content)
    if usage is None:
        output = max(1, len(generated_text(said)) // _CHARACTERS_PER_TOKEN)
        usage = Usage(input_tokens=expected_input(request), output_tokens=output)
    return {
        **opening(request, completion),
        "content": content,
        **ending(request, choice, calls=calls, refused=bool(said.get("refusal"))),
        "usage": usage_of(usage),
    }


def opening(request: CompletionRequest, said: dict[str, Any]) -> dict[str, Any]:
    """What stands at the beginning of a message, from a completion or a chunk; it has no content and no end yet."""
    model = said.get("model")
    return {
        "id": _id("msg_", said.get("id") or request.id),
        "type": "message",
        "role": "assistant",
        "model": model if type(model) is str and model else request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage_of(Usage(input_tokens=expected_input(request), output_tokens=1)),
    }


def expected_input(request: CompletionRequest) -> int:
    """Before the backend says how many tokens there are."""
    return max(1, request.estimated_tokens or 1)


def _id(prefix: str, given: object) -> str:
    text = str(given).removeprefix("chatcmpl-")
    return text if text.startswith(prefix) else prefix + text


def ending(
    request: CompletionRequest, choice: dict[str, Any], *, calls: bool, refused: bool = False
) -> dict[str, str | None]:
    """`stop_reason` and `stop_sequence`. Some servers say `stop` after a call, and whoever runs it goes by the reason.

    Which sequence was met OpenAI does not tell; vLLM does.
    """
    finish, sequence = choice.get("finish_reason"), choice.get("stop_reason")
    reason = _REASONS.get(finish, "end_turn") if type(finish) is str else "end_turn"
    if reason == "end_turn" and type(sequence) is str and sequence in (request.body.get("stop_sequences") or ()):
        return {"stop_reason": "stop_sequence", "stop_sequence": sequence}
    if reason == "end_turn" and (calls or refused):
        reason = "tool_use" if calls else REFUSED
    return {"stop_reason": reason, "stop_sequence": None}


def usage_of(usage: Usage) -> dict[str, Any]:
    """Anthropic's usage object, whose output includes thinking."""
    said: dict[str, Any] = {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_write_5m_tokens + usage.cache_write_1h_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.all_output,
    }
    if usage.reasoning_tokens:
        said["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return said


def _blocks(request: CompletionRequest, said: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if thinking.shown(request.body):
        yield from _thoughts(said)
    for field in ("content", "refusal"):
        if text := _text(said.get(field)):
            yield {"type": "text", "text": text}
    names = long_names(request.body)
    for number, call in enumerate(objects(said.get("tool_calls"))):
        (function,) = objects([call.get("function")]) or [{}]
        name = _text(function.get("name"))
        yield {
            "type": "tool_use",
            "id": _text(call.get("id")) or call_id(request, number),
            "name": names.get(name, name),
            "input": _input(function.get("arguments")),
        }


def _thoughts(said: dict[str, Any]) -> list[dict[str, Any]]:
    """Signed ones as they are; what a backend without signatures thought is marked as its."""
    if blocks := objects(said.get("thinking_blocks")):
        return [
            {"signature": thinking.UNSIGNED, **block} if block.get("type") == "thinking" else block for block in blocks
        ]
    thought = _text(said.get("reasoning_content")) or _text(said.get("reasoning"))
    return [{"type": "thinking", "thinking": thought, "signature": thinking.UNSIGNED}] if thought else []


def _text(content: Any) -> str:
    """Of a string, or of parts as some servers send them."""
    if type(content) is list:
        return "".join([_text(part.get("text")) for part in objects(content)])
    return content if type(content) is str else ""


def objects(value: Any) -> list[dict[str, Any]]:
    """Those in a list; a backend may send anything."""
    return [item for item in value if type(item) is dict] if type(value) is list else []


def _input(arguments: Any) -> dict[str, Any]:
    """A model that writes no JSON object has called without arguments, as far as its client can tell."""
    if type(arguments) is dict:
        return arguments
    try:
        given = orjson.loads(arguments or "{}")
    except (orjson.JSONDecodeError, TypeError):
        return {}
    return given if type(given) is dict else {}


def call_id(request: CompletionRequest, number: int) -> str:
    """Of a call to which the backend gave none."""
    return f"toolu_{request.id.removeprefix('req_')}_{number}"
