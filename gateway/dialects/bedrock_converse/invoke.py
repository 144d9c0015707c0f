"""InvokeModel with Anthropic's bodies as a client's API: Anthropic's messages in AWS's form.

https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-anthropic-claude-messages.html
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

import orjson

from gateway.dialects.anthropic_messages import dialect as messages
from gateway.dialects.anthropic_messages.request import parse
from gateway.dialects.bedrock_converse.errors import error_body, exception_of
from gateway.dialects.bedrock_converse.event_stream import event
from gateway.dialects.framing import FramedEndpoint
from gateway.dialects.openai_chat.request import load_object
from gateway.dialects.streams import sse
from gateway.domain.request import CompletionRequest, Controls
from gateway.errors import BadRequest, GatewayError

_BETA = re.compile(r"[!-~]{1,128}")
_MOST_BETAS = 64


def parse_invoke(
    body: bytes, request_id: str, controls: Controls, headers: Mapping[bytes, bytes], /, *, model: str, stream: bool
) -> CompletionRequest:
    """Parse a request as one of Anthropic's messages. Raises BadRequest if the body is not Anthropic's."""
    fields = load_object(body)
    if not isinstance(fields.pop("anthropic_version", None), str):
        raise BadRequest(
            "anthropic_version is required. Only Anthropic's bodies are served at this path; send others to "
            "/model/MODEL/converse.",
            param="anthropic_version",
        )
    if betas := _betas(fields.pop("anthropic_beta", None)):
        headers = {**headers, b"anthropic-beta": ",".join(betas).encode()}
    return parse(orjson.dumps({**fields, "model": model, "stream": stream}), request_id, controls, headers)


def _betas(given: Any) -> list[str]:
    """The beta names in `given`, the value of `anthropic_beta`. Raises BadRequest for names that cannot be in a
    header."""
    if given is None:
        return []
    valid = isinstance(given, list) and all(isinstance(name, str) and _BETA.fullmatch(name) for name in given)
    if not valid or len(given) > _MOST_BETAS:
        raise BadRequest(f"anthropic_beta must be an array of at most {_MOST_BETAS} names.", param="anthropic_beta")
    return list(given)


class InvokeFraming:
    """Implements `Framing`: each of Anthropic's events becomes the contents of a `chunk`."""

    content_type = b"application/vnd.amazon.eventstream"

    def __init__(self) -> None:
        self._framer = sse.Framer()

    def plain(self, body: bytes) -> bytes:
        return body

    def stream(self, piece: bytes) -> bytes:
        return b"".join(map(_frame, sse.events(self._framer.feed(piece))))


def _frame(given: bytes) -> bytes:
    """Convert `given`, an event in Anthropic's format, to a frame of Bedrock's event stream. A `ping` becomes nothing,
    and an error becomes an exception frame."""
    data = sse.payload(given)
    parsed = orjson.loads(data) if data else {}
    match parsed.get("type"):
        case None | "ping":
            return b""
        case "error":
            return exception_of(parsed.get("status", 500), parsed["error"]["message"])
    return event("chunk", {"bytes": base64.b64encode(data).decode()})


class InvokeEndpoint(FramedEndpoint):
    """Implements `ClientDialect` for one model and one operation."""

    may_lack_content_type = True
    parse_body = staticmethod(parse_invoke)
    error_body = staticmethod(error_body)
    choices = staticmethod(messages.choices)
    replayed = staticmethod(messages.replayed)

    def error_event(self, error: GatewayError, request_id: str, sent: bytes = b"", /) -> bytes:
        """The last event of a stream that failed, in the form that `InvokeFraming` converts to an exception."""
        body = orjson.loads(messages.error_body(error, request_id))
        return b"event: error\ndata: " + orjson.dumps({**body, "status": error.status}) + b"\n\n"

    def framing(self) -> InvokeFraming:
        return InvokeFraming()
