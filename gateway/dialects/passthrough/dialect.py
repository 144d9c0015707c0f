"""The client side of OpenAI's other endpoints. Their requests and answers are passed through; the gateway reads only
the name of the model and a few fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.dialects.openai_chat import dialect as openai_chat
from gateway.dialects.openai_chat.request import FORWARDED, load_object
from gateway.dialects.passthrough import form
from gateway.dialects.requests.fields import read_model
from gateway.dialects.requests.output_limits import MAX_ANSWERS
from gateway.domain.policy import PassThrough
from gateway.domain.request import CompletionRequest, Controls, Turn
from gateway.errors import BadRequest, GatewayError

ENDPOINTS: Mapping[str, PassThrough] = {
    "/audio/speech": "audio",
    "/audio/transcriptions": "audio",
    "/audio/translations": "audio",
    "/images/generations": "images",
    "/images/edits": "images",
    "/images/variations": "images",
    "/moderations": "moderations",
    "/rerank": "rerank",
}
"""Path below `/v1` → the permission that a policy must grant for this path."""

_ASKED = ("input", "prompt", "query", "documents")
"""Names of the fields that contain the text of a request to these endpoints."""
_MOST_FIELD = 64 * 2**10
"""Maximum bytes of a form field. A longer field is not read."""
_MOST_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Implements `ClientDialect` for one path."""

    path: str

    def parse(
        self, body: bytes, request_id: str, controls: Controls, headers: Mapping[bytes, bytes], /
    ) -> CompletionRequest:
        """Parse a request. Raises BadRequest if the body cannot be read or names no model."""
        content_type = headers.get(b"content-type", b"")
        fields = _form(body, content_type) if form.is_form(content_type) else load_object(body)
        cache = controls.cache if controls.cache == "only" else "bypass"
        kept = {name: headers[name] for name in headers if name in FORWARDED}
        return CompletionRequest(
            id=request_id,
            dialect="openai_other",
            raw=body,
            body=fields,
            model=read_model(fields),
            turns=[Turn(0, "user", _text([fields.get(name) for name in _ASKED]))],
            stream=fields.get("stream") in (True, "true") or fields.get("stream_format") == "sse",
            max_output_tokens=None,
            temperature=None,
            needs=frozenset(),
            controls=controls._replace(cache=cache, untouched=True),
            headers={**kept, b"content-type": content_type or b"application/json"},
            path=self.path,
            parallel=_images(fields.get("n")) if self.path.startswith("/images/") else 1,
            one_context=False,
            one_model=True,
        )

    def status(self, error: GatewayError, /) -> int:
        return openai_chat.status(error)

    def error_body(self, error: GatewayError, request_id: str, /) -> bytes:
        return openai_chat.error_body(error, request_id)

    def error_event(self, error: GatewayError, request_id: str, sent: bytes = b"", /) -> bytes:
        return openai_chat.error_event(error, request_id)

    def choices(self, body: dict[str, Any], /) -> list[dict[str, Any]]:
        """Returns an empty list, because answers of these endpoints are not cached."""
        return []

    def replayed(self, request: CompletionRequest, body: dict[str, Any], /) -> tuple[bytes, bytes]:
        """Never called, because answers of these endpoints are not cached."""
        return b"", b""


def _form(body: bytes, content_type: bytes) -> dict[str, Any]:
    """The fields of a form, without files. If several fields have the same name, the last one is used."""
    found: dict[str, Any] = {}
    for part in form.parts(body, content_type):
        if not part.file and part.end - part.start <= _MOST_FIELD:
            found[part.name] = body[part.start : part.end].decode("utf-8", "replace")
    return found


def _images(value: Any) -> int:
    """The number of images that the request asks for. `value`: an integer, or digits in a form; an invalid value counts
    as 1. Raises BadRequest for more than `MAX_ANSWERS`."""
    if type(value) is str and value.isascii() and value.isdigit():
        value = int(value) if len(value) <= _MOST_DIGITS else MAX_ANSWERS + 1
    if type(value) is not int or value <= 1:
        return 1
    if value > MAX_ANSWERS:
        raise BadRequest(f"n must be a whole number from 1 to {MAX_ANSWERS}.", param="n")
    return value


def _text(value: Any) -> str:
    """All text in `value`, for counting its tokens."""
    if type(value) is str:
        return value
    if type(value) is dict:
        return _text([value.get("text"), value.get("content")])
    return "\n".join(filter(None, map(_text, value))) if type(value) is list else ""
