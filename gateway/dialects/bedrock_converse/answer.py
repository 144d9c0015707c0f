"""Writes answers in Converse's format: whole, streamed and replayed. The answers are made from messages in Anthropic's
format."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson

from gateway.dialects.bedrock_converse.event_stream import event, events
from gateway.dialects.bedrock_converse.request import BEGAN, MESSAGES
from gateway.dialects.streams.text_run import encoded
from gateway.dialects.translate.messages_to_chat.answer import message, usage_of
from gateway.dialects.translate.messages_to_chat.writer import MessagesWriter
from gateway.domain.money.usage import Usage
from gateway.domain.request import CompletionRequest

Block = dict[str, Any]

_STOPS = {"refusal": "content_filtered"}
"""Anthropic's stop reason → Converse's stop reason. All other stop reasons have the same names in both."""
_COUNTS = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cacheReadInputTokens": "cache_read_input_tokens",
    "cacheWriteInputTokens": "cache_creation_input_tokens",
}


_DATA = b"\ndata: "


def reply(request: CompletionRequest, completion: dict[str, Any], usage: Usage | None) -> dict[str, Any]:
    """The whole answer, made from a chat completion."""
    said = message(as_messages(request), completion, usage)
    return {
        "output": {"message": {"role": "assistant", "content": [_block(each) for each in said["content"]]}},
        "stopReason": _stop(said["stop_reason"]),
        **_counted(request, said["usage"]),
    }


def as_messages(request: CompletionRequest) -> CompletionRequest:
    """The request with its body in Anthropic's format."""
    return replace(request, body=request.echoed[MESSAGES])


def _stop(reason: Any) -> Any:
    return _STOPS.get(reason, reason)


def _counted(request: CompletionRequest, usage: dict[str, Any]) -> dict[str, Any]:
    counts = {theirs: usage.get(ours) or 0 for theirs, ours in _COUNTS.items()}
    took_ms = int((time.monotonic() - request.echoed[BEGAN]) * 1000)
    return {"usage": {**counts, "totalTokens": sum(counts.values())}, "metrics": {"latencyMs": took_ms}}


def _block(block: Block) -> Block:
    match block["type"]:
        case "tool_use":
            return {"toolUse": {"toolUseId": block["id"], "name": block["name"], "input": block["input"]}}
        case "thinking":
            return {"reasoningContent": {"reasoningText": {"text": block["thinking"], "signature": block["signature"]}}}
        case "redacted_thinking":
            return {"reasoningContent": {"redactedContent": block["data"]}}
    return {"text": block["text"]}


class ConverseWriter:
    """Implements `Writer` for Converse. Converts the events that the writer for Anthropic messages produces."""

    def __init__(self, request: CompletionRequest) -> None:
        self._request, self._inner = request, MessagesWriter(as_messages(request))

    def write(self, chunk: dict[str, Any]) -> bytes:
        return self._converted(self._inner.write(chunk))

    def more(self, texts: list[str]) -> bytes | None:
        index = self._inner.text_block(len(texts))
        if index is None:
            return None
        payload = b'{"delta":{"text":"%%b"},"contentBlockIndex":%d}' % index
        return events("contentBlockDelta", [payload % text for text in encoded(texts)])

    def end(self, finish: str, usage: Usage | None) -> bytes:
        return self._converted(self._inner.end(finish, usage))

    def whole(self) -> bytes | None:
        return None

    def _converted(self, events: bytes) -> bytes:
        # the events are the inner writer's own, so each has one line of data, and JSON contains no line break
        pieces = [each.partition(_DATA)[2] for each in events.split(b"\n\n") if each]
        return b"".join([self._events(orjson.loads(piece)) for piece in pieces])

    def _events(self, given: dict[str, Any]) -> bytes:
        index = {"contentBlockIndex": given.get("index")}
        match given["type"]:
            case "message_start":
                return event("messageStart", {"role": "assistant"})
            case "content_block_start":
                return _begin(given["content_block"], index)
            case "content_block_delta":
                return event("contentBlockDelta", {"delta": _delta(given["delta"]), **index})
            case "content_block_stop":
                return event("contentBlockStop", index)
            case "message_delta":
                return _ended(self._request, given["delta"]["stop_reason"], given["usage"])
        return b""


def ended(request: CompletionRequest, reason: str, usage: Usage) -> bytes:
    """The last events of an answer. `reason`: the stop reason in Anthropic's terms."""
    return _ended(request, reason, usage_of(usage))


def _ended(request: CompletionRequest, reason: Any, usage: dict[str, Any]) -> bytes:
    return event("messageStop", {"stopReason": _stop(reason)}) + event("metadata", _counted(request, usage))


def _begin(block: Block, index: Block) -> bytes:
    """The event that begins a block; empty if the block needs none. Only tool calls and hidden thinking need one."""
    if block["type"] == "tool_use":
        call = {"toolUseId": block["id"], "name": block["name"]}
        return event("contentBlockStart", {"start": {"toolUse": call}, **index})
    if block["type"] == "redacted_thinking":
        return event("contentBlockDelta", {"delta": {"reasoningContent": {"redactedContent": block["data"]}}, **index})
    return b""


def _delta(delta: Block) -> Block:
    match delta["type"]:
        case "input_json_delta":
            return {"toolUse": {"input": delta["partial_json"]}}
        case "thinking_delta":
            return {"reasoningContent": {"text": delta["thinking"]}}
        case "signature_delta":
            return {"reasoningContent": {"signature": delta["signature"]}}
    return {"text": delta["text"]}


def frames(body: dict[str, Any]) -> tuple[bytes, bytes]:
    """A stored answer, converted to a stream. Returns two values: all frames except the last two, and the last two
    frames."""
    begun = [event("messageStart", {"role": "assistant"})]
    for place, block in enumerate(body["output"]["message"]["content"]):
        index = {"contentBlockIndex": place}
        begun += (*_pieces(block, index), event("contentBlockStop", index))
    counted: Block = {name: body[name] for name in ("usage", "metrics") if name in body}
    return b"".join(begun), event("messageStop", {"stopReason": body["stopReason"]}) + event("metadata", counted)


def _pieces(block: Block, index: Block) -> Iterator[bytes]:
    if call := block.get("toolUse"):
        given = orjson.dumps(call["input"]).decode()
        yield _begin({"type": "tool_use", "id": call["toolUseId"], "name": call["name"]}, index)
        yield event("contentBlockDelta", {"delta": {"toolUse": {"input": given}}, **index})
    elif thought := block.get("reasoningContent"):
        text = thought.get("reasoningText")
        for piece in [{name: text[name]} for name in ("text", "signature") if name in text] if text else [thought]:
            yield event("contentBlockDelta", {"delta": {"reasoningContent": piece}, **index})
    elif cited := block.get("citationsContent"):
        for piece in (*(cited.get("content") or ()), *({"citation": each} for each in cited.get("citations") or ())):
            yield event("contentBlockDelta", {"delta": piece, **index})
    else:
        yield event("contentBlockDelta", {"delta": block, **index})
