"""Converts a chat completion to an Anthropic message: blocks, stop reason, usage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from gateway.dialects.anthropic_messages import thinking
from gateway.dialects.openai_chat.message import generated_text, objects, signature_of
from gateway.dialects.translate.messages_to_chat.tools import long_names
from gateway.domain.body_scan import UNSIGNED
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
    """Convert the first choice of `completion` to a message. If `usage` is None, it is estimated."""
    choice = completion["choices"][0]
    reply = choice["message"]
    content = list(_blocks(request, reply))
    calls = any(block["type"] == "tool_use" for block in content)
    if usage is None:
        output = max(1, len(generated_text(reply)) // _CHARACTERS_PER_TOKEN)
        usage = Usage(input_tokens=expected_input(request), output_tokens=output)
    return {
        **opening(request, completion),
        "content": content,
        **ending(request, choice, calls=calls, refused=bool(reply.get("refusal"))),
        "usage": usage_of(usage),
    }


def opening(request: CompletionRequest, start: dict[str, Any]) -> dict[str, Any]:
    """A message that has just begun: it has no content, and the stop reason and stop sequence are null. `start`: the
    completion, or the first chunk of a stream."""
    model = start.get("model")
    return {
        "id": _id("msg_", start.get("id") or request.id),
        "type": "message",
        "role": "assistant",
        "model": model if type(model) is str and model else request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage_of(Usage(input_tokens=expected_input(request), output_tokens=1)),
    }


def expected_input(request: CompletionRequest) -> int:
    """The estimated number of input tokens. Used until the backend reports the number."""
    return max(1, request.estimated_tokens or 1)


def _id(prefix: str, value: object) -> str:
    text = str(value).removeprefix("chatcmpl-")
    return text if text.startswith(prefix) else prefix + text


def ending(
    request: CompletionRequest, choice: dict[str, Any], *, calls: bool, refused: bool = False
) -> dict[str, str | None]:
    """The fields `stop_reason` and `stop_sequence`. With calls, the reason is always `tool_use`, on which clients rely.
    Only vLLM reports the stop sequence."""
    finish, sequence = choice.get("finish_reason"), choice.get("stop_reason")
    reason = _REASONS.get(finish, "end_turn") if type(finish) is str else "end_turn"
    if reason == "end_turn" and type(sequence) is str and sequence in (request.body.get("stop_sequences") or ()):
        return {"stop_reason": "stop_sequence", "stop_sequence": sequence}
    if reason == "end_turn" and (calls or refused):
        reason = "tool_use" if calls else REFUSED
    return {"stop_reason": reason, "stop_sequence": None}


def usage_of(usage: Usage) -> dict[str, Any]:
    """Anthropic's usage object. In this format, the output tokens include thinking."""
    written: dict[str, Any] = {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_write_5m_tokens + usage.cache_write_1h_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.all_output,
    }
    if usage.reasoning_tokens:
        written["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return written


def _blocks(request: CompletionRequest, reply: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if thinking.shown(request.body):
        yield from _thinking_blocks(reply)
    for field in ("content", "refusal"):
        if text := _text(reply.get(field)):
            yield {"type": "text", "text": text}
    names = long_names(request.body)
    for number, call in enumerate(objects(reply.get("tool_calls"))):
        (function,) = objects([call.get("function")]) or [{}]
        name = _text(function.get("name"))
        if (signature := signature_of(call)) and thinking.returns(request.body):
            yield thinking.carrier(signature)
        yield {
            "type": "tool_use",
            "id": _text(call.get("id")) or call_id(request, number),
            "name": names.get(name, name),
            "input": _input(function.get("arguments")),
        }


def _thinking_blocks(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """The thinking blocks of an answer. If the backend does not sign its thinking, a fixed marker is used as the
    signature."""
    if blocks := objects(reply.get("thinking_blocks")):
        return [{"signature": UNSIGNED, **block} if block.get("type") == "thinking" else block for block in blocks]
    thought = _text(reply.get("reasoning_content")) or _text(reply.get("reasoning"))
    return [{"type": "thinking", "thinking": thought, "signature": UNSIGNED}] if thought else []


def _text(content: Any) -> str:
    """The text in `content`, which is a string or, from some servers, a list of parts."""
    if type(content) is list:
        return "".join([_text(part.get("text")) for part in objects(content)])
    return content if type(content) is str else ""


def _input(arguments: Any) -> dict[str, Any]:
    """The arguments of a call as an object. Empty if the text that the model generated is not a JSON object."""
    if type(arguments) is dict:
        return arguments
    try:
        value = orjson.loads(arguments or "{}")
    except (orjson.JSONDecodeError, TypeError):
        return {}
    return value if type(value) is dict else {}


def call_id(request: CompletionRequest, number: int) -> str:
    """An id for a call that has no id from the backend. `number`: index of the call."""
    return f"toolu_{request.id.removeprefix('req_')}_{number}"
