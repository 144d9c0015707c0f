"""Log-probabilities that the gateway asks for on its own: added to the request, removed from the answer."""

from __future__ import annotations

from dataclasses import replace

from gateway.dialects.json_splice import splice
from gateway.dialects.openai_chat.plain import without_logprobs
from gateway.dialects.streams import sse
from gateway.domain.request import CompletionRequest


def can_tell(request: CompletionRequest) -> bool:
    """Is it a request whose stream would have log-probabilities that the client did not ask for?"""
    return request.dialect == "openai_chat" and request.stream and not request.body.get("logprobs")


def sounded(request: CompletionRequest) -> CompletionRequest:
    """The same request, asking for log-probabilities."""
    raw = splice(request.raw, request.body, {"logprobs": b"true"})
    return replace(request, raw=raw, body={**request.body, "logprobs": True}, as_chat=None)


def without(events: bytes) -> bytes:
    """Whole `events` as they would be had nobody asked."""
    if b'"logprobs"' not in events:
        return events
    return b"".join([_without(event) for event in sse.events(events)])


def _without(event: bytes) -> bytes:
    data = sse.payload(event)
    if not data.startswith(b"{") or b'"logprobs"' not in data:
        return event
    return event.replace(data, without_logprobs(data), 1)
