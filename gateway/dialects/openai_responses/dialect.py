"""The client side of OpenAI Responses: parses requests, writes errors and stored answers."""

from __future__ import annotations

import re
from typing import Any

import orjson

from gateway.dialects.openai_chat.dialect import error_body, status
from gateway.dialects.openai_responses.replay import response_stream
from gateway.dialects.openai_responses.request import CONVERSATION, parse
from gateway.dialects.translate.chat_to_responses.reply import choices
from gateway.domain.request import CompletionRequest
from gateway.errors import GatewayError

__all__ = ["CONVERSATION", "choices", "error_body", "error_event", "parse", "replayed", "status"]

_NUMBER = re.compile(rb'"sequence_number":[ \t]*([0-9]{1,9})\b')
_LAST = 2**31 - 1
"""A number that is larger than any sequence number in a stream."""


def error_event(error: GatewayError, request_id: str, sent: bytes = b"") -> bytes:
    """The last event of a stream that failed. `sent`: the last events that the client got, whose numbers are continued.

    The error is written twice: in the documented fields, and in `error`, which OpenAI's clients read.
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
    """The sequence number for the event after the last event in `sent`."""
    numbers = _NUMBER.findall(sent)
    return int(numbers[-1]) + 1 if numbers else _LAST


def replayed(request: CompletionRequest, body: dict[str, Any]) -> tuple[bytes, bytes]:
    """Convert a plain `body` to a stream. Returns two values: all events except the terminating event, and the
    terminating event."""
    return response_stream(request, body)
