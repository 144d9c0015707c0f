"""Converts Bedrock's answers to forms that the dialects can read: server-sent events, and errors in Anthropic's
format."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Sequence
from functools import lru_cache

import orjson

from gateway.backends.http.canned import Canned
from gateway.backends.providers.base import Upstream
from gateway.backends.providers.bedrock.event_stream import Decoder, Messages
from gateway.backends.providers.converted import Converted
from gateway.domain.answer import Sink
from gateway.errors import BackendGarbage, StreamBroken

_KINDS = {
    "throttling": "rate_limit_error",
    "modelnotready": "rate_limit_error",
    "servicequotaexceeded": "rate_limit_error",
    "serviceunavailable": "overloaded_error",
    "validation": "invalid_request_error",
    "accessdenied": "permission_error",
    "resourcenotfound": "not_found_error",
}
"""Name of Bedrock's exception, without its suffix → Anthropic's error type. An exception that is not listed becomes
`api_error`."""
_STATUSES = {"rate_limit_error": 429, "overloaded_error": 503}
_SERVER_FAULTS = frozenset({408, 424})
"""Status codes with which Bedrock reports a failure of the model, not an error in the request."""
_TOO_LONG = ("too long", "too many input tokens", "context limit")


class Events(Converted):
    """Wraps an `Upstream` whose body is an AWS event stream, and converts the body to server-sent events."""

    def __init__(self, inner: Upstream, write: Callable[[Messages], bytes]) -> None:
        super().__init__(inner)
        self._write, self._decoder = write, Decoder()

    def _convert(self, piece: bytes) -> bytes:
        return b"".join([self._write(messages) for messages in self._decoder.feed(piece)])

    async def pipe_to(self, take: Sink) -> bool:
        more = await super().pipe_to(take)
        if not more and self._decoder.inside:
            raise StreamBroken("The backend closed its stream in the middle of an event.")
        return more


def anthropics_events(messages: Messages) -> bytes:
    """Convert events of InvokeModelWithResponseStream to server-sent events. Each event contains Anthropic's own event
    in base64. Raises BackendGarbage."""
    if failure := _failure(messages):
        return failure
    try:
        inner = [b64decode(orjson.loads(payload)["bytes"], validate=True) for payload in messages.payloads]
        named: list[tuple[str, bytes]] = [(orjson.loads(each)["type"], each) for each in inner]
        return b"".join([b"event: %b\ndata: %b\n\n" % (name.encode(), each) for name, each in named])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise BackendGarbage("The backend sent an event that is not one of Anthropic's.") from error


def converse_events(messages: Messages) -> bytes:
    """Convert events of ConverseStream to server-sent events in boto3's format. The format is an object whose only
    key is the event's type."""
    if failure := _failure(messages):
        return failure
    before = b"data: {%b:" % _quoted(messages.headers.get(":event-type", b""))
    payloads = [payload or b"{}" for payload in messages.payloads]
    return b"%b%b}\n\n" % (before, (b"}\n\n" + before).join(payloads))


@lru_cache(maxsize=64)
def _quoted(name: bytes) -> bytes:
    """The name of an event's type as JSON. Cached, because a stream has many events of few types."""
    return orjson.dumps(name.decode("utf-8", "replace"))


def _failure(messages: Messages) -> bytes:
    """The error event for exception messages; empty for other messages."""
    if messages.headers.get(":message-type") not in (b"exception", b"error"):
        return b""
    name = messages.header(":exception-type") or messages.header(":error-code")
    text = _text(messages.payloads[0]) or messages.header(":error-message") or name
    error = {"type": _kind(name), "message": text}
    return b"event: error\ndata: " + orjson.dumps({"type": "error", "error": error}) + b"\n\n"


def refused(status: int, name: str, body: bytes, headers: Sequence[tuple[bytes, bytes]]) -> Canned:
    """The refusal as a response in Anthropic's format. `name`: the name of Bedrock's exception, which was in
    `x-amzn-errortype`."""
    kind, message = _kind(name), _text(body)
    if kind == "invalid_request_error" and any(words in message.lower() for words in _TOO_LONG):
        message = f"prompt is too long: {message}"
    if status in _SERVER_FAULTS:
        status = 500
    elif 400 <= status < 500:
        status = _STATUSES.get(kind, status)
    error = {"type": "error", "error": {"type": kind, "message": message or name}}
    return Canned(status, orjson.dumps(error) if message or name else body, dict(headers))


def named_in(body: bytes) -> str:
    """The name of the exception in the body of an error; empty if there is none. The body is read because proxies drop
    the header that usually has the name."""
    try:
        read = orjson.loads(body)
        name = read.get("__type") or read.get("code")
    except (ValueError, AttributeError):
        return ""
    return name.rpartition("#")[2] if type(name) is str else ""


def _kind(name: str) -> str:
    return _KINDS.get(name.partition(":")[0].lower().removesuffix("exception"), "api_error")


def _text(body: bytes) -> str:
    try:
        read = orjson.loads(body)
        text = read.get("message") or read.get("Message")
    except (ValueError, AttributeError):
        return ""
    return text if type(text) is str else ""
