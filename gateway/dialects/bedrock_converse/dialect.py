"""The client side of Converse: recognises its paths, parses requests, writes errors and stored answers."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

import orjson

from gateway.dialects.bedrock_converse.answer import frames
from gateway.dialects.bedrock_converse.event_stream import exception
from gateway.dialects.bedrock_converse.request import parse
from gateway.dialects.path_endpoint import PathEndpoint
from gateway.dialects.translate.chat_to_converse.reply import message
from gateway.dialects.translate.chat_to_messages.reply import chat_completion
from gateway.domain.request import CompletionRequest
from gateway.errors import GatewayError

_PATH = re.compile(r"/model/(?P<model>.+)/converse(?P<stream>-stream)?")
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


def at(path: str) -> Endpoint | None:
    """The endpoint at `path`, which contains the model. None if `path` does not have the form of Converse's paths."""
    found = _PATH.fullmatch(path)
    return Endpoint(unquote(found["model"]), stream=found["stream"] is not None) if found else None


def named_in(path: str) -> Endpoint | None:
    """The endpoint that writes the errors for `path`. None if `path` is not the path of a Bedrock model."""
    return Endpoint("", stream=False) if path.startswith("/model/") else None


class Endpoint(PathEndpoint):
    """Implements `ClientDialect` for one model and one operation."""

    parse_body = staticmethod(parse)

    def error_body(self, error: GatewayError, request_id: str, /) -> bytes:
        """The error as `{"__type", "message"}`. The message names the field that caused the error."""
        kind = _EXCEPTIONS.get(error.status, "ValidationException" if error.status < 500 else "InternalServerException")
        return orjson.dumps({"__type": kind, "message": _message(error)})

    def error_event(self, error: GatewayError, request_id: str, sent: bytes = b"", /) -> bytes:
        """The last event of a stream that failed: an exception. Clients read nothing after it."""
        return exception(_IN_STREAMS.get(error.status, "modelStreamErrorException"), _message(error))

    def choices(self, body: dict[str, Any], /) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = chat_completion(message(body), None, 0)["choices"]
        return found

    def replayed(self, request: CompletionRequest, body: dict[str, Any], /) -> tuple[bytes, bytes]:
        """Convert a plain body to a stream. Returns (all earlier frames, last two frames). The last two contain stop
        reason and usage."""
        return frames(body)


def _message(error: GatewayError) -> str:
    named = error.param and error.param not in error.message
    return f"{error.param}: {error.message}" if named else error.message
