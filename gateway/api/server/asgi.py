"""ASGI functions: read a body within its limits, and send a reply."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import Request
from starlette.types import Message, Receive, Send

from gateway.dialects.facts import FACTS
from gateway.errors import BadRequest, BodyTooLarge, GatewayError, InvalidKey, RequestTimeout, UnsupportedMediaType
from gateway.runtime.codings import Coding, Decoding, Oversized, TooCostly, UnknownCoding, decode, parse_coding
from gateway.runtime.deadlines import Deadlines
from gateway.runtime.off_loop import OffLoop
from gateway.settings.gateway import RequestLimits

Headers = list[tuple[bytes, bytes]]

SMALL_BYTES = 10_000
"""Maximum bytes of a body of a request other than inference."""
AT_ONCE_BYTES = 256 * 2**10
"""Bytes below which a body is decoded or encoded on the event loop, in about a millisecond. A larger body is processed
in a thread."""
READ = "gzip, deflate, br, zstd"
"""Content codings that requests may have."""
_AT_ONCE_S = 0.002
"""Maximum CPU seconds on the event loop for decoding a body whose encoded size is small. If decoding takes longer, the
rest of the body is decoded in a thread."""
_SMALL_S = 0.05
"""Maximum CPU seconds for decoding the body of a request other than inference. Such a body is decoded on the event
loop."""
_OURS = b"tg-"
_KEY_HEADERS = tuple(dict.fromkeys(name for facts in FACTS.values() for name in facts.key_headers))
_KEY_READERS = tuple(facts.key_in for facts in FACTS.values() if facts.key_in is not None)


def by_name(headers: Headers) -> dict[bytes, bytes]:
    """The headers as a dictionary from name to value. Of several headers with the same name, the first one is used."""
    return dict(reversed(headers))


def secret(headers: Mapping[bytes, bytes]) -> bytes:
    """The caller's key, from `Authorization: Bearer` or a header of a vendor's SDK. Raises InvalidKey when there is
    none."""
    authorization = headers.get(b"authorization", b"")
    if authorization.startswith(b"Bearer " + _OURS):  # the usual case, without the search in other headers
        return authorization[7:].strip()
    key = next(filter(None, map(headers.get, _KEY_HEADERS)), None)
    if authorization[:7].lower() == b"bearer " and (token := authorization[7:].strip()):
        if key and key.startswith(_OURS) and not token.startswith(_OURS):
            return key  # some clients also send credentials of another login
        return token
    if key := key or next(filter(None, (read(authorization) for read in _KEY_READERS)), None):
        return key
    raise InvalidKey(
        "You didn't provide an API key. Send Authorization: Bearer tg-… (or x-api-key: tg-…); "
        "`thriftgate keys create --team NAME` makes one."
    )


def check_json(headers: Mapping[bytes, bytes]) -> None:
    """Raise UnsupportedMediaType unless the content type is JSON."""
    kind = headers.get(b"content-type", b"")
    if kind == b"application/json":
        return
    kind = kind.split(b";", 1)[0].strip().lower()
    if kind != b"application/json" and not kind.endswith(b"+json"):
        shown = kind.decode("latin-1")[:80] or "nothing"
        raise UnsupportedMediaType(f"Content-Type must be application/json, not {shown}.")


def check_length(headers: Mapping[bytes, bytes], limit: int) -> None:
    """Raise BodyTooLarge if `content-length` exceeds the limit, before the body is read."""
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and int(declared) > limit:
        raise too_large(limit)


@dataclass(frozen=True, slots=True)
class Pace:
    """The minimum speed at which a body must arrive."""

    total_s: float
    """Seconds for the whole body."""
    rate: float = 0.0
    """Minimum bytes per second, on average since the start; 0: no minimum."""
    grace_s: float = 0.0
    """Seconds at the beginning during which the minimum does not apply."""

    @classmethod
    def of(cls, limits: RequestLimits) -> Pace:
        """The pace that the settings require for the body of an inference request."""
        return cls(limits.body_timeout, limits.body_rate, limits.body_grace)

    @classmethod
    def of_uploads(cls, limits: RequestLimits) -> Pace:
        return cls(limits.upload_timeout, limits.body_rate, limits.body_grace)

    def due_s(self, received: int) -> float:
        """The time at which the next byte must have arrived, in seconds after the start. `received`: bytes so far."""
        return min(self.total_s, self.grace_s + received / self.rate) if self.rate else self.total_s


SMALL_PACE = Pace(5.0)
"""The pace of requests other than inference."""


async def read_body(receive: Receive, limit: int, pace: Pace, deadlines: Deadlines | None = None) -> bytes:
    """Read the whole body. Raises BodyTooLarge, RequestTimeout if it arrives too slowly, ConnectionResetError if the
    client has left. `deadlines`: timers that several readers share, so that frequent calls cost less.
    """
    began, size = asyncio.get_running_loop().time(), 0
    pieces: list[bytes] = []
    while True:
        message = await next_message(receive, began + pace.due_s(size), deadlines)
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise too_large(limit)
        if not message.get("more_body"):
            return b"".join((*pieces, piece)) if pieces else piece
        pieces.append(piece)


async def next_message(receive: Receive, until: float, deadlines: Deadlines | None = None) -> Message:
    """Wait for the next message of the body. Raises RequestTimeout at `until` (loop time), ConnectionResetError if
    the client has left.

    `deadlines`: timers that several readers share, so that frequent calls cost less.
    """
    try:
        if deadlines is None:
            async with asyncio.timeout_at(until):
                message = await receive()
        else:
            with deadlines.at(until):
                message = await receive()
    except TimeoutError:
        raise stalled() from None
    if message["type"] == "http.disconnect":
        raise ConnectionResetError("the client left before its request was whole")
    return message


async def decoded(body: bytes, header: bytes, limit: int, aside: OffLoop) -> bytes:
    """Decode a request's body. `header`: value of `content-encoding`. `aside`: threads for slow decoding.

    Raises BadRequest, UnsupportedMediaType, and BodyTooLarge above `limit` bytes.
    """
    coding = read_coding(header.decode("latin-1"))
    if coding is None:
        return body
    decoding = Decoding(body, coding, limit)
    with client_errors(too_large(limit)):
        if len(body) <= AT_ONCE_BYTES and (out := decoding.begin(_AT_ONCE_S)) is not None:
            return out
        try:
            return await aside.run(decoding.finish)
        except asyncio.CancelledError:
            decoding.stop()
            raise


def read_coding(header: str) -> Coding | None:
    """The content coding of a request's body. Raises UnsupportedMediaType."""
    try:
        return parse_coding(header)
    except UnknownCoding:
        problem = f"Content-Encoding {header[:80]} is not read here; one of {READ} is, once."
        raise UnsupportedMediaType(problem) from None


@contextmanager
def client_errors(oversized: GatewayError) -> Iterator[None]:
    """In this context, convert errors of decoding to errors for the client.

    Raises `oversized` for a body above the limit, and BadRequest for a body that cannot be decoded.
    """
    try:
        yield
    except Oversized:
        raise oversized from None
    except TooCostly as error:
        raise BadRequest(f"The body's content-encoding is not decoded to its end: {error}; encode it as one.") from None
    except ValueError as error:
        raise BadRequest(f"The body is not what its content-encoding says: {error}.") from error


def stalled() -> GatewayError:
    return RequestTimeout(
        "The request's body did not arrive in time. Send it again, faster; body_timeout, upload_timeout and body_rate "
        "under requests in gateway.yaml say how fast it has to come."
    )


def closing(status: int) -> Headers:
    """Headers of an answer that is sent before the rest of the request has been read."""
    return [(b"connection", b"close")] if status == RequestTimeout.status else []


def too_large(limit: int) -> GatewayError:
    return BodyTooLarge(f"The request body is larger than the {limit} bytes that the operator allows.")


async def send_whole(
    send: Send, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes, *, pause_s: float = 0.0
) -> None:
    """Send the head and body of a complete reply. `pause_s`: seconds before the connection's next request is read."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*headers, (b"content-length", str(len(body)).encode())],
        }
    )
    if pause_s:
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await asyncio.sleep(pause_s)
        body = b""
    await send({"type": "http.response.body", "body": body})


async def read_object(request: Request, limit: int = SMALL_BYTES) -> dict[str, Any]:
    """Read a JSON object of at most `limit` bytes, for routes other than inference. Raises BadRequest,
    UnsupportedMediaType, BodyTooLarge, RequestTimeout, ConnectionResetError.
    """
    headers = by_name(request.scope["headers"])
    check_json(headers)
    check_length(headers, limit)
    body = await read_body(request.receive, limit, SMALL_PACE)
    if (header := headers.get(b"content-encoding")) and (coding := read_coding(header.decode("latin-1"))):
        with client_errors(too_large(limit)):
            body = decode(body, coding, limit, _SMALL_S)
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"The body is not valid JSON: {error}.") from error
    if not isinstance(value, dict):
        raise BadRequest("The body must be a JSON object.")
    return value
