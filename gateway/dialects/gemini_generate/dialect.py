"""The client side of generateContent: recognises its paths, parses requests, writes errors and stored answers."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

import orjson

from gateway.dialects.gemini_generate.answer import event
from gateway.dialects.gemini_generate.request import parse
from gateway.dialects.path_endpoint import PathEndpoint
from gateway.dialects.translate.chat_to_gemini.reply import completion
from gateway.domain.request import CompletionRequest
from gateway.errors import GatewayError

_PATH = re.compile(
    r"/v1(?:beta1?)?(?:/projects/[^/]+/locations/[^/]+/publishers/google)?/models/"
    r"(?P<model>.+):(?P<method>generateContent|streamGenerateContent)"
)
"""Matches the paths of the Gemini API and of Vertex AI."""
_ANY = re.compile(
    r"/v1(?:beta1?)?(?:/projects/.+)?/models/.+:"
    r"(?:generateContent|streamGenerateContent|countTokens|embedContent|batchEmbedContents)"
)
"""Matches the paths of all methods of the Gemini API and of Vertex AI. The name of a model may contain a colon."""
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


def at(path: str) -> Endpoint | None:
    """The endpoint at `path`, which contains the model and the method. None if `path` does not have the form of
    Gemini's paths."""
    found = _PATH.fullmatch(path)
    return Endpoint(unquote(found["model"]), stream=found["method"].startswith("stream")) if found else None


def named_in(path: str) -> Endpoint | None:
    """The endpoint that writes the errors for `path`; None if it is no Gemini path. Any method of a model is
    accepted."""
    return Endpoint("", stream=False) if _ANY.fullmatch(path) else None


class Endpoint(PathEndpoint):
    """Implements `ClientDialect` for one model and one method."""

    parse_body = staticmethod(parse)

    def error_body(self, error: GatewayError, request_id: str, /) -> bytes:
        """The error as `{"error": {"code", "message", "status"}}`. The message names the field that caused the
        error."""
        named = error.param and error.param not in error.message
        message = f"{error.param}: {error.message}" if named else error.message
        status = _STATUSES.get(error.status, "INVALID_ARGUMENT" if error.status < 500 else "INTERNAL")
        detail = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": error.code, "domain": "thriftgate"}
        content = {"code": error.status, "message": message, "status": status, "details": [detail]}
        return orjson.dumps({"error": content})

    def error_event(self, error: GatewayError, request_id: str, sent: bytes = b"", /) -> bytes:
        return b"data: " + self.error_body(error, request_id) + b"\n\n"

    def choices(self, body: dict[str, Any], /) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = completion(body, {}, "call_")["choices"]
        return found

    def replayed(self, request: CompletionRequest, body: dict[str, Any], /) -> tuple[bytes, bytes]:
        """Convert a plain body to a stream. Returns two values: the answer as one event, and the end of the stream as
        another event."""
        begun = [{name: value for name, value in each.items() if name != "finishReason"} for each in body["candidates"]]
        ended = [{**each, "content": {"role": "model", "parts": [{"text": ""}]}} for each in body["candidates"]]
        rest = {name: value for name, value in body.items() if name not in ("candidates", "usageMetadata")}
        return event({"candidates": begun, **rest}), event({**body, "candidates": ended})
