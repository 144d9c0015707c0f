"""OpenAI's chat dialect towards clients: requests in, errors and the list of models out."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from gateway.dialects.chat_request import parse
from gateway.errors import GatewayError

__all__ = ["error_body", "error_event", "models", "parse"]


def error_body(error: GatewayError, request_id: str) -> bytes:
    """`{"error": {"message", "type", "param", "code"}}`; the request id is in the message when we are to blame."""
    message = error.message
    if error.status >= 500 and request_id:
        message = f"{message} (request {request_id})"
    return orjson.dumps({"error": {"message": message, "type": error.kind, "param": error.param, "code": error.code}})


def error_event(error: GatewayError, request_id: str) -> bytes:
    """The last event of a stream that broke; no `[DONE]` follows it."""
    return b"data: " + error_body(error, request_id) + b"\n\n"


def models(names: Iterable[tuple[str, str]]) -> bytes:
    """The body of GET /v1/models from (name, owner); the gateway does not know when models were made."""
    data = [{"id": name, "object": "model", "created": 0, "owned_by": owner} for name, owner in names]
    return orjson.dumps({"object": "list", "data": data})
