"""The client side of generateContent: recognises its paths, parses requests, writes errors and stored answers."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from gateway.dialects.client import ClientDialect
from gateway.dialects.gemini_generate.answer import event
from gateway.dialects.gemini_generate.embed import Embed, EmbedBatch
from gateway.dialects.gemini_generate.errors import error_body, error_event
from gateway.dialects.gemini_generate.request import parse
from gateway.dialects.path_endpoint import PathEndpoint
from gateway.dialects.translate.chat_to_gemini.reply import completion
from gateway.domain.request import CompletionRequest

_PATH = re.compile(
    r"/v1(?:beta1?)?(?:/projects/[^/]+/locations/[^/]+/publishers/google)?/models/"
    r"(?P<model>.+):(?P<method>generateContent|streamGenerateContent|embedContent|batchEmbedContents)"
)
"""Matches the paths of the Gemini API and of Vertex AI."""
_ANY = re.compile(
    r"/v1(?:beta1?)?(?>(?:/projects/.+?)?/models/).+:"
    r"(?:generateContent|streamGenerateContent|countTokens|embedContent|batchEmbedContents)"
)
"""Matches the paths of all methods of the Gemini API and of Vertex AI. The name of a model may contain a colon."""


def at(path: str) -> ClientDialect | None:
    """The endpoint at `path`, which contains the model and the method. None if `path` does not have the form of
    Gemini's paths."""
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    model, method = unquote(found["model"]), found["method"]
    if method.endswith("Contents"):
        return EmbedBatch(model, stream=False)
    return Embed(model, stream=False) if method == "embedContent" else Endpoint(model, stream=method[0] == "s")


def named_in(path: str) -> Endpoint | None:
    """The endpoint that writes the errors for `path`. None if `path` is not a path of Gemini's API. Any method of a
    model is accepted."""
    return Endpoint("", stream=False) if _ANY.fullmatch(path) else None


class Endpoint(PathEndpoint):
    """Implements `ClientDialect` for one model and one method."""

    parse_body = staticmethod(parse)
    key_parameter = b"key"

    error_body, error_event = staticmethod(error_body), staticmethod(error_event)

    def choices(self, body: dict[str, Any], /) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = completion(body, {}, "call_")["choices"]
        return found

    def replayed(self, request: CompletionRequest, body: dict[str, Any], /) -> tuple[bytes, bytes]:
        """Convert a plain body to a stream. Returns two values: the answer as one event, and the end of the stream as
        another event."""
        given = body.get("candidates") or ()  # absent if Google blocked the prompt
        begun = [{name: value for name, value in each.items() if name != "finishReason"} for each in given]
        ended = [{**each, "content": {"role": "model", "parts": [{"text": ""}]}} for each in given]
        rest = {name: value for name, value in body.items() if name not in ("candidates", "usageMetadata")}
        return event({"candidates": begun, **rest}), event({**body, "candidates": ended})
