"""The client side of OpenAI chat: parses requests, writes errors and stored answers."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects.openai_chat.replay import chat_stream
from gateway.dialects.openai_chat.request import CONVERSATION, parse
from gateway.domain.request import CompletionRequest
from gateway.errors import GatewayError

__all__ = ["CONVERSATION", "choices", "error_body", "error_event", "parse", "replayed", "status"]


def status(error: GatewayError) -> int:
    """The HTTP status code of `error`."""
    return error.status


def error_body(error: GatewayError, request_id: str) -> bytes:
    """The error as `{"error": {"message", "type", "param", "code"}}`. If the gateway caused the error (5xx), the
    message contains the request id."""
    message = error.message
    if error.status >= 500 and request_id:
        message = f"{message} (request {request_id})"
    return orjson.dumps({"error": {"message": message, "type": error.kind, "param": error.param, "code": error.code}})


def error_event(error: GatewayError, request_id: str, sent: bytes = b"") -> bytes:
    """The last event of a stream that failed. No `[DONE]` follows this event. `sent` is not used."""
    return b"data: " + error_body(error, request_id) + b"\n\n"


def choices(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The choices of a plain body."""
    found: list[dict[str, Any]] = body["choices"]
    return found


def replayed(request: CompletionRequest, body: dict[str, Any]) -> tuple[bytes, bytes]:
    """Convert a plain `body` to a stream. Returns two values: all events except `[DONE]`, and `[DONE]`."""
    return chat_stream(body, wants_usage=request.wants_usage)
