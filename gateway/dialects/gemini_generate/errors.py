"""Errors in the form of Google's APIs."""

from __future__ import annotations

import orjson

from gateway.errors import GatewayError

_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def error_body(error: GatewayError, request_id: str, /) -> bytes:
    """The error as `{"error": {"code", "message", "status"}}`. The message names the field that caused the error."""
    named = error.param and error.param not in error.message
    message = f"{error.param}: {error.message}" if named else error.message
    status = _STATUSES.get(error.status, "INVALID_ARGUMENT" if error.status < 500 else "INTERNAL")
    detail = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": error.code, "domain": "thriftgate"}
    content = {"code": error.status, "message": message, "status": status, "details": [detail]}
    return orjson.dumps({"error": content})


def error_event(error: GatewayError, request_id: str, sent: bytes = b"", /) -> bytes:
    """The last event of a stream that failed. `sent` is not used."""
    return b"data: " + error_body(error, request_id) + b"\n\n"
