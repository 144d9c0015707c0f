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


def writer(request: CompletionRequest) -> MessagesWriter:
    """The writer of a stream."""
    return MessagesWriter(as_messages(request), _Frames(request))


class _Frames:
    """Implements `Form`: writes each of Anthropic's events as an event of Converse. Some of Anthropic's events have no
    equivalent."""

    STOP = b""

    def __init__(self, request: CompletionRequest) -> None:
        self._request = request

    def message_start(self, message: dict[str, Any]) -> bytes:
        return event("messageStart", {"role": "assistant"})

    def block_start(self, index: int, block: Block) -> bytes:
        return _begin(block, index)

    def text_delta(self, index: int, text: str) -> bytes:
        return _delta(index, {"text": text})

    def text_deltas(self, index: int, texts: list[str]) -> bytes:
        payload = b'{"delta":{"text":"%%b"},"contentBlockIndex":%d}' % index
        return events("contentBlockDelta", [payload % text for text in encoded(texts)])

    def thinking_delta(self, index: int, text: str) -> bytes:
        return _delta(index, {"reasoningContent": {"text": text}})

    def signature_delta(self, index: int, signature: str) -> bytes:
        return _delta(index, {"reasoningContent": {"signature": signature}})

    def input_delta(self, index: int, piece: str) -> bytes:
        return _delta(index, {"toolUse": {"input": piece}})

    def block_stop(self, index: int) -> bytes:
        return event("contentBlockStop", {"contentBlockIndex": index})

    def message_delta(self, fields: dict[str, Any], usage: dict[str, Any]) -> bytes:
        return _ended(self._request, fields["stop_reason"], usage)


def ended(request: CompletionRequest, reason: str, usage: Usage) -> bytes:
    """The last events of an answer. `reason`: the stop reason in Anthropic's terms."""
    return _ended(request, reason, usage_of(usage))


def _ended(request: CompletionRequest, reason: Any, usage: dict[str, Any]) -> bytes:
    return event("messageStop", {"stopReason": _stop(reason)}) + event("metadata", _counted(request, usage))


def _begin(block: Block, index: int) -> bytes:
    """The event that begins a block; empty if the block needs none. Only tool calls and hidden thinking need one."""
    if block["type"] == "tool_use":
        call = {"toolUseId": block["id"], "name": block["name"]}
        return event("contentBlockStart", {"start": {"toolUse": call}, "contentBlockIndex": index})
    if block["type"] == "redacted_thinking":
        return _delta(index, {"reasoningContent": {"redactedContent": block["data"]}})
    return b""


def _delta(index: int, delta: Block) -> bytes:
    return event("contentBlockDelta", {"delta": delta, "contentBlockIndex": index})


def frames(body: dict[str, Any]) -> tuple[bytes, bytes]:
    """A stored answer, converted to a stream. Returns two values: all frames except the last two, and the last two
    frames."""
    begun = [event("messageStart", {"role": "assistant"})]
    for place, block in enumerate(body["output"]["message"]["content"]):
        begun += (*_pieces(block, place), event("contentBlockStop", {"contentBlockIndex": place}))
    counted: Block = {name: body[name] for name in ("usage", "metrics") if name in body}
    return b"".join(begun), event("messageStop", {"stopReason": body["stopReason"]}) + event("metadata", counted)


def _pieces(block: Block, index: int) -> Iterator[bytes]:
    deltas: list[Block] = [block]
    if call := block.get("toolUse"):
        yield _begin({"type": "tool_use", "id": call["toolUseId"], "name": call["name"]}, index)
        deltas = [{"toolUse": {"input": orjson.dumps(call["input"]).decode()}}]
    elif thought := block.get("reasoningContent"):
        text = thought.get("reasoningText")
        parts = [{name: text[name]} for name in ("text", "signature") if name in text] if text else [thought]
        deltas = [{"reasoningContent": part} for part in parts]
    elif cited := block.get("citationsContent"):
        deltas = [*(cited.get("content") or ()), *({"citation": each} for each in cited.get("citations") or ())]
    for delta in deltas:
        yield _delta(index, delta)
