"""How the HTTP client's tests call it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.backends.http.client import HttpClient, Response

Dial = Callable[..., HttpClient]

PLAIN = b'{"model": "m", "messages": [{"role": "user", "content": "two words"}]}'
STREAM = PLAIN[:-1] + b', "stream": true}'
OK = b"HTTP/1.1 200 OK\r\n"


async def send(
    client: HttpClient, body: bytes = PLAIN, *, deadline_s: float = 5.0, first_byte_timeout: float = 5.0
) -> Response:
    deadline = asyncio.get_running_loop().time() + deadline_s
    return await client.request(
        "POST",
        "/chat/completions",
        [(b"content-type", b"application/json")],
        body,
        deadline=deadline,
        first_byte_timeout=first_byte_timeout,
    )


async def fetch(client: HttpClient, body: bytes = PLAIN, **more: float) -> bytes:
    response = await send(client, body, **more)
    try:
        return await response.read(10**8)
    finally:
        await response.aclose()


async def collect(response: Response, into: bytearray) -> None:
    async for piece in response:
        into += piece


async def pieces_until(response: Response, wanted: bytes) -> bytes:
    got = b""
    async for piece in response:
        got += piece
        if wanted in got:
            break
    return got
