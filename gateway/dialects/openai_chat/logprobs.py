"""Adds log-probabilities to a request in which the client did not ask for them. Removes them from the answer."""

from __future__ import annotations

from dataclasses import replace

from gateway.dialects.json_splice import splice
from gateway.dialects.openai_chat.plain import without_logprobs
from gateway.dialects.streams import sse
from gateway.domain.request import CompletionRequest


def can_ask(request: CompletionRequest) -> bool:
    """Whether the gateway can ask for log-probabilities in this stream, although the client did not."""
    return request.dialect == "openai_chat" and request.stream and not request.body.get("logprobs")


def with_logprobs(request: CompletionRequest) -> CompletionRequest:
    """A copy of the request that asks for log-probabilities."""
    raw = splice(request.raw, request.body, {"logprobs": b"true"})
    return replace(request, raw=raw, body={**request.body, "logprobs": True}, as_chat=None)


def without(events: bytes) -> bytes:
    """Remove the log-probabilities from `events`, which must be whole events."""
    if b'"logprobs"' not in events:
        return events
    return b"".join([_without(event) for event in sse.events(events)])


def _without(event: bytes) -> bytes:
    data = sse.payload(event)
    if not data.startswith(b"{") or b'"logprobs"' not in data:
        return event
    return event.replace(data, without_logprobs(data), 1)
