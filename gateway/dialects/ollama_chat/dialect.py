"""The client side of Ollama's chat: parses requests, writes errors and stored answers."""

from __future__ import annotations

from typing import Any

import orjson

from gateway.dialects.ollama_chat.answer import choice, line
from gateway.dialects.ollama_chat.request import parse
from gateway.domain.request import CompletionRequest
from gateway.errors import GatewayError

__all__ = ["choices", "error_body", "error_event", "parse", "replayed", "status"]


def status(error: GatewayError) -> int:
    return error.status


def error_body(error: GatewayError, request_id: str) -> bytes:
    """The error as `{"error": message}`. The message names the field that caused the error."""
    named = error.param and error.param not in error.message
    return orjson.dumps({"error": f"{error.param}: {error.message}" if named else error.message})


def error_event(error: GatewayError, request_id: str, sent: bytes = b"") -> bytes:
    """The last line of a stream that failed. No line with `done` follows. `sent` is not used."""
    return error_body(error, request_id) + b"\n"


def choices(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [choice(body)]


def replayed(request: CompletionRequest, body: dict[str, Any]) -> tuple[bytes, bytes]:
    """Convert a plain body to a stream. Returns two values: the answer as one line, and the end of the stream as
    another line."""
    begun = {name: body[name] for name in ("model", "created_at", "message")}
    return line({**begun, "done": False}), line({**body, "message": {"role": "assistant", "content": ""}})
