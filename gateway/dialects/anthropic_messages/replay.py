"""Replays a stored message as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from gateway.dialects.anthropic_messages import events
from gateway.domain.request import CompletionRequest

PIECE = 80
"""Number of characters of text per event. This is about twenty tokens."""

_LAST = ("stop_reason", "stop_sequence", "stop_details", "container")
"""Names of fields that a stream contains only at its end."""


def replayed(request: CompletionRequest, body: dict[str, Any]) -> tuple[bytes, bytes]:
    """Convert a plain body to a stream. Returns two values: all events except the terminating event, and the
    terminating event."""
    usage = {"input_tokens": 1, "output_tokens": 1, **(body.get("usage") or {})}
    begun = {**body, "content": [], "stop_reason": None, "stop_sequence": None, "usage": {**usage, "output_tokens": 1}}
    written = [events.message_start(begun)]
    for index, block in enumerate(body["content"]):
        written += _block(index, block)
    last = {name: body[name] for name in _LAST if name in body}
    written.append(events.message_delta(last, usage))
    return b"".join(written), events.STOP


def _block(index: int, block: dict[str, Any]) -> Iterator[bytes]:
    begun = dict(block)
    deltas = list(_deltas(index, begun))
    yield events.block_start(index, begun)
    yield from deltas
    yield events.block_stop(index)


def _deltas(index: int, block: dict[str, Any]) -> Iterator[bytes]:
    """Yield the events for the text of `block`, and remove this text from `block`. For blocks of unknown types, yields
    nothing."""
    match block["type"]:
        case "text":
            for citation in block.pop("citations", None) or ():
                yield events.delta(index, {"type": "citations_delta", "citation": citation})
            for piece in _pieces(block, "text"):
                yield events.text_delta(index, piece)
        case "thinking":
            for piece in _pieces(block, "thinking"):
                yield events.thinking_delta(index, piece)
            signature, block["signature"] = block.get("signature") or "", ""
            yield events.signature_delta(index, signature)
        case "tool_use" | "server_tool_use":
            value, block["input"] = block.get("input"), {}
            if value:
                yield events.input_delta(index, orjson.dumps(value).decode())


def _pieces(block: dict[str, Any], field: str) -> list[str]:
    text, block[field] = block.get(field) or "", ""
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
