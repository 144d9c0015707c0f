"""Gemini's embedContent and batchEmbedContents as a client's API: OpenAI's embeddings in Google's form.

https://ai.google.dev/api/embeddings
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import orjson

from gateway.dialects.framing import FramedEndpoint
from gateway.dialects.gemini_generate.errors import error_body, error_event
from gateway.dialects.gemini_generate.request import camel_case
from gateway.dialects.openai_chat.request import load_object
from gateway.dialects.openai_embeddings import dialect as embeddings
from gateway.dialects.translate.chat_to_gemini.embeddings import EXTRAS
from gateway.domain.request import CompletionRequest, Controls
from gateway.errors import BadRequest

_OWN = ("taskType", "title")
"""Names of fields that OpenAI's embeddings do not have. Only Google's backends get them."""


def parse_one(
    body: bytes, request_id: str, controls: Controls, headers: Mapping[bytes, bytes], /, *, model: str, stream: bool
) -> CompletionRequest:
    """Parse an embedContent request. Raises BadRequest."""
    fields = camel_case(load_object(body))
    given = [_text(fields, "")], [_own(fields)], fields.get("outputDimensionality")
    return _request(*given, model, request_id, controls, headers)


def parse_batch(
    body: bytes, request_id: str, controls: Controls, headers: Mapping[bytes, bytes], /, *, model: str, stream: bool
) -> CompletionRequest:
    """Parse a batchEmbedContents request. Raises BadRequest, also if its parts ask for vectors of different lengths."""
    asked = camel_case(load_object(body)).get("requests")
    if not isinstance(asked, list) or not asked or not all(isinstance(each, dict) for each in asked):
        raise BadRequest("requests must be an array of at least one object.", param="requests")
    texts = [_text(each, f"requests[{place}].") for place, each in enumerate(asked)]
    lengths = [each.get("outputDimensionality") for each in asked]
    if any(length != lengths[0] for length in lengths):
        raise BadRequest("All requests must have the same outputDimensionality.", param="outputDimensionality")
    return _request(texts, [_own(each) for each in asked], lengths[0], model, request_id, controls, headers)


def _own(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in _OWN if fields.get(name) is not None}


def _text(fields: Mapping[str, Any], place: str) -> str:
    """The text to embed. If a content has several parts, they are joined by line breaks."""
    content = fields.get("content")
    parts = content.get("parts") if isinstance(content, dict) else None
    given = parts if isinstance(parts, list) else []
    texts = [part["text"] for part in given if isinstance(part, dict) and isinstance(part.get("text"), str)]
    if not all(texts) or not texts or len(texts) < len(given):
        raise BadRequest(f"{place}content.parts must be texts; others cannot be embedded.", param=f"{place}content")
    return "\n".join(texts)


def _request(
    texts: list[str],
    own: list[dict[str, Any]],
    dimensions: Any,
    model: str,
    request_id: str,
    controls: Controls,
    headers: Mapping[bytes, bytes],
) -> CompletionRequest:
    fields: dict[str, Any] = {"model": model, "input": texts, "encoding_format": "float"}
    if dimensions is not None:
        fields["dimensions"] = dimensions
    try:
        request = embeddings.parse(orjson.dumps(fields), request_id, controls, headers)
    except BadRequest as error:
        if error.param == "dimensions":
            error.param = "outputDimensionality"
            error.message = error.message.replace("dimensions", "outputDimensionality")
        raise
    if any(own):
        request.body = {**request.body, EXTRAS: own}
    return request


class OneVector:
    """Implements `Framing` for embedContent."""

    content_type = b"application/json"

    def plain(self, body: bytes) -> bytes:
        return orjson.dumps({"embedding": _vectors(body)[0]})

    def stream(self, piece: bytes) -> bytes:
        return piece


class Vectors(OneVector):
    """Implements `Framing` for batchEmbedContents."""

    def plain(self, body: bytes) -> bytes:
        return orjson.dumps({"embeddings": _vectors(body)})


def _vectors(body: bytes) -> list[dict[str, Any]]:
    rows = sorted(orjson.loads(body)["data"], key=lambda row: row["index"])
    return [{"values": row["embedding"]} for row in rows]


class Embed(FramedEndpoint):
    """Implements `ClientDialect` for embedContent with one model."""

    parse_body = staticmethod(parse_one)
    key_parameter = b"key"
    error_body, error_event = staticmethod(error_body), staticmethod(error_event)
    choices, replayed = staticmethod(embeddings.choices), staticmethod(embeddings.replayed)
    form: ClassVar[type[OneVector]] = OneVector

    def framing(self) -> OneVector:
        return self.form()


class EmbedBatch(Embed):
    """Implements `ClientDialect` for batchEmbedContents with one model."""

    parse_body = staticmethod(parse_batch)
    form = Vectors
