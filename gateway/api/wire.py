"""Raw ASGI: read a body within its limits, send a reply, hear a client hang up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import orjson
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from gateway.errors import BadRequest, BodyTooLarge, GatewayError, InvalidKey, UnsupportedMediaType

Headers = list[tuple[bytes, bytes]]


def header(scope: Scope, name: bytes) -> bytes:
    """The first header called `name` (lower case); empty when there is none."""
    for key, value in scope["headers"]:
        if key == name:
            found: bytes = value
            return found
    return b""


def secret(scope: Scope) -> bytes:
    """The caller's key, from `Authorization: Bearer` or `x-api-key`. Raises InvalidKey when there is none."""
    authorization = header(scope, b"authorization")
    if authorization[:7].lower() == b"bearer " and (token := authorization[7:].strip()):
        return token
    if key := header(scope, b"x-api-key"):
        return key
    raise InvalidKey(
        "You didn't provide an API key. Send Authorization: Bearer tg-… (or x-api-key: tg-…); "
        "`thriftgate keys create --team NAME` makes one."
    )


def check_json(scope: Scope) -> None:
    """Raises UnsupportedMediaType unless the body says it is plain JSON."""
    kind = header(scope, b"content-type").split(b";", 1)[0].strip().lower()
    if kind != b"application/json" and not kind.endswith(b"+json"):
        shown = kind.decode("latin-1")[:80] or "nothing"
        raise UnsupportedMediaType(f"Content-Type must be application/json, not {shown}.")
    if header(scope, b"content-encoding") not in (b"", b"identity"):
        raise UnsupportedMediaType("Compressed request bodies are not read; send the JSON as it is.")


async def read_body(scope: Scope, receive: Receive, limit: int, timeout_s: float) -> bytes:
    """The whole body. Raises BodyTooLarge, BadRequest when it stalls, ConnectionResetError when the client left."""
    declared = header(scope, b"content-length")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    message = await _next(receive, timeout_s)
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        if len(body) > limit:
            raise _too_large(limit)
        return body
    pieces, size = [body], len(body)
    loop = asyncio.get_running_loop()
    until = loop.time() + timeout_s
    while message.get("more_body"):
        message = await _next(receive, until - loop.time())
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        pieces.append(piece)
    return b"".join(pieces)


async def _next(receive: Receive, timeout_s: float) -> Message:
    try:
        async with asyncio.timeout(timeout_s):
            message = await receive()
    except TimeoutError:
        raise BadRequest("The request's body did not arrive in time.") from None
    if message["type"] == "http.disconnect":
        raise ConnectionResetError("the client left before its request was whole")
    return message


def _too_large(limit: int) -> GatewayError:
    return BodyTooLarge(f"The request body is larger than the {limit} bytes that the operator allows.")


async def send_whole(send: Send, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
    """Head and body of a reply that is known whole."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*headers, (b"content-length", str(len(body)).encode())],
        }
    )
    await send({"type": "http.response.body", "body": body})


async def read_object(request: Request) -> dict[str, Any]:
    """A small JSON object, for the routes around inference. Raises BadRequest and what `read_body` raises."""
    check_json(request.scope)
    body = await read_body(request.scope, request.receive, limit=10_000, timeout_s=5.0)
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"The body is not valid JSON: {error}.") from error
    if not isinstance(value, dict):
        raise BadRequest("The body must be a JSON object.")
    return value


class HangUp:
    """Cancels the task that serves a client as soon as the client leaves."""

    def __init__(self, receive: Receive, serving: asyncio.Task[object]) -> None:
        self._receive = receive
        self._serving = serving
        self.happened = False
        self.answered = False
        """Set before the last bytes go: servers call the end of an answer a disconnect too, and it is none."""

    async def watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self.answered:
            self.happened = True
            self._serving.cancel()
