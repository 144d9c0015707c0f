"""The client side of Anthropic messages: parses requests, writes errors and stored answers."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects.anthropic_messages.replay import replayed
from gateway.dialects.anthropic_messages.request import CONVERSATION, THREAD, parse
from gateway.dialects.translate.chat_to_messages.reply import chat_completion
from gateway.errors import ContextTooLong, GatewayError

__all__ = ["CONVERSATION", "choices", "error_body", "error_event", "parse", "replayed", "status"]

OVERLOADED = 529
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    OVERLOADED: "overloaded_error",
}
_NO_THREADS = {"error_code": "thread_unsupported_request", "unsupported": [THREAD]}
"""Details of the error for a request with a thread. Anthropic's tool runners then send all messages and no thread."""
_TOO_LONG = "prompt is too long"
"""The beginning of Anthropic's error text for a context that is too long. Coding agents that receive this text compact
their context."""


def status(error: GatewayError) -> int:
    """The HTTP status code of `error`. Status 503 is replaced by 529, as Anthropic's API does."""
    return OVERLOADED if error.status == 503 else error.status


def error_body(error: GatewayError, request_id: str) -> bytes:
    """The error as `{"type": "error", "error": {"type", "message"}, "request_id"}`. The message names the field that
    caused the error."""
    code = status(error)
    kind = _KINDS.get(code, "invalid_request_error" if code < 500 else "api_error")
    body: dict[str, Any] = {"type": kind, "message": _message(error)}
    if error.param == THREAD:
        body["details"] = _NO_THREADS
    return orjson.dumps({"type": "error", "error": body, "request_id": request_id or None})


def _message(error: GatewayError) -> str:
    message = error.message
    if error.param and error.param not in message:
        message = f"{error.param}: {message}"
    if error.code == ContextTooLong.code and _TOO_LONG not in message:
        message = f"{_TOO_LONG}: {message}"
    return message


def error_event(error: GatewayError, request_id: str, sent: bytes = b"") -> bytes:
    """The last event of a stream that failed. No `message_stop` follows this event. `sent` is not used."""
    return b"event: error\ndata: " + error_body(error, request_id) + b"\n\n"


def choices(body: dict[str, Any]) -> list[dict[str, Any]]:
    """A stored message, converted to the only choice of a chat completion."""
    found: list[dict[str, Any]] = chat_completion(body, None, 0)["choices"]
    return found
