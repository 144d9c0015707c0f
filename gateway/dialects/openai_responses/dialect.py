"""The client side of OpenAI Responses: parses requests, writes errors and stored answers."""

from __future__ import annotations

import re
from typing import Any

import orjson

from gateway.dialects.openai_chat.dialect import error_body, status
from gateway.dialects.openai_responses.replay import response_stream
from gateway.dialects.openai_responses.request import parse
from gateway.dialects.translate.chat_to_responses.reply import choices
from gateway.domain.request import CompletionRequest
from gateway.errors import GatewayError

__all__ = ["choices", "error_body", "error_event", "parse", "replayed", "status"]

_NUMBER = re.compile(rb'"sequence_number":[ \t]*([0-9]{1,9})\b')
_LAST = 2**31 - 1
"""Larger than any sequence number in a stream."""


def error_event(error: GatewayError, request_id: str, sent: bytes = b"") -> bytes:
    """The last event of a stream that failed; no terminating event follows.

    It contains the error twice: in the documented fields, and as `error`, which OpenAI's own clients read.
    """
    inner = orjson.loads(error_body(error, request_id))["error"]
    event = {
        "type": "error",
        "code": inner["code"],
        "message": inner["message"],
        "param": inner["param"],
        "sequence_number": _next_number(sent),
        "error": inner,
    }
    return b"event: error\ndata: " + orjson.dumps(event) + b"\n\n"


def _next_number(sent: bytes) -> int:
    """The number after the sequence number of the last event in `sent`. Inside a JSON string the key's quotes would be
    escaped."""
    numbers = _NUMBER.findall(sent)
    return int(numbers[-1]) + 1 if numbers else _LAST


def replayed(request: CompletionRequest, body: dict[str, Any]) -> tuple[bytes, bytes]:
    """Convert a plain `body` to a stream: all events but the terminating one, and the terminating one."""
    return response_stream(request, body)
