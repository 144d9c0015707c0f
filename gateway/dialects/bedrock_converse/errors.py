"""Errors in the form of Bedrock's API."""

from __future__ import annotations

import orjson

from gateway.dialects.bedrock_converse.event_stream import exception
from gateway.errors import GatewayError

_EXCEPTIONS = {
    400: "ValidationException",
    401: "UnrecognizedClientException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
    504: "ModelTimeoutException",
}
_IN_STREAMS = {429: "throttlingException", 503: "serviceUnavailableException"}
"""Status code → exception in a stream. Any other failure becomes `modelStreamErrorException`."""


def error_body(error: GatewayError, request_id: str, /) -> bytes:
    """The error as `{"__type", "message"}`. The message names the field that caused the error."""
    kind = _EXCEPTIONS.get(error.status, "ValidationException" if error.status < 500 else "InternalServerException")
    return orjson.dumps({"__type": kind, "message": message_of(error)})


def exception_of(status: int, message: str) -> bytes:
    """The last event of a stream that failed with this status."""
    return exception(_IN_STREAMS.get(status, "modelStreamErrorException"), message)


def message_of(error: GatewayError) -> str:
    named = error.param and error.param not in error.message
    return f"{error.param}: {error.message}" if named else error.message
