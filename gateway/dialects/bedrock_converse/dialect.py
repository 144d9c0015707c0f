"""The client side of Converse: recognises Bedrock's paths, parses requests, writes errors and stored answers."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from gateway.dialects.bedrock_converse.answer import frames
from gateway.dialects.bedrock_converse.errors import error_body, exception_of, message_of
from gateway.dialects.bedrock_converse.invoke import InvokeEndpoint
from gateway.dialects.bedrock_converse.request import parse
from gateway.dialects.client import ClientDialect
from gateway.dialects.path_endpoint import PathEndpoint
from gateway.dialects.translate.chat_to_converse.reply import message
from gateway.dialects.translate.chat_to_messages.reply import chat_completion
from gateway.domain.request import CompletionRequest
from gateway.errors import GatewayError

_PATH = re.compile(r"/model/(?P<model>.+)/(?:converse(?P<stream>-stream)?|invoke(?P<chunks>-with-response-stream)?)")


def at(path: str) -> ClientDialect | None:
    """The endpoint at `path`, which contains the model. None if `path` is not a path of Converse or InvokeModel."""
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    kind = Endpoint if "/converse" in path[found.end("model") :] else InvokeEndpoint
    return kind(unquote(found["model"]), stream=bool(found["stream"] or found["chunks"]))


def named_in(path: str) -> Endpoint | None:
    """The endpoint that writes the errors for `path`. None if `path` is not the path of a Bedrock model."""
    return Endpoint("", stream=False) if path.startswith("/model/") else None


class Endpoint(PathEndpoint):
    """Implements `ClientDialect` for one model and one operation."""

    parse_body = staticmethod(parse)

    error_body = staticmethod(error_body)

    def error_event(self, error: GatewayError, request_id: str, sent: bytes = b"", /) -> bytes:
        """The last event of a stream that failed: an exception. Clients read nothing after the exception. `sent` is not
        used."""
        return exception_of(error.status, message_of(error))

    def choices(self, body: dict[str, Any], /) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = chat_completion(message(body), None, 0)["choices"]
        return found

    def replayed(self, request: CompletionRequest, body: dict[str, Any], /) -> tuple[bytes, bytes]:
        """Convert a plain body to a stream. Returns two values: all frames except the last two, and the last two
        frames. These contain the stop reason and the usage."""
        return frames(body)
