"""A client that sends given bytes over a socket of its own and keeps the response's bytes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

TIMEOUT_S = 60.0
"""For a whole response, on a busy machine."""
_BODILESS = (b"204", b"304")


@dataclass(frozen=True)
class Response:
    """`body` is what the framing carries: where a stream is cut into pieces depends on timing, their sum does not."""

    head: bytes
    """Status line and headers, without the empty line after them."""
    body: bytes
    whole: bool
    """The framing's end arrived, not only that of the connection."""


async def send(port: int, request: bytes) -> Response:
    """The response to `request`. Raises TimeoutError, ConnectionError."""
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
        try:
            writer.write(request)
            return await _read(reader)
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Response:
    head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
    length, chunked = framing(head)
    if head.split(b" ", 2)[1] in _BODILESS:
        return Response(head, b"", True)
    try:
        if chunked:
            return Response(head, *await _chunks(reader))
        if length is None:
            return Response(head, await reader.read(), True)
        return Response(head, await reader.readexactly(length), True)
    except asyncio.IncompleteReadError as cut:
        return Response(head, cut.partial, False)


def framing(head: bytes) -> tuple[int | None, bool]:
    """The content length, if there is one, and whether the body comes in chunks."""
    fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:])
    length = fields.get(b"content-length")
    return None if length is None else int(length), fields.get(b"transfer-encoding", b"").strip() == b"chunked"


async def _chunks(reader: asyncio.StreamReader) -> tuple[bytes, bool]:
    body = b""
    try:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
    except (asyncio.IncompleteReadError, ConnectionError):
        return body, False
    return body, True
