"""A large body, handed on while it still arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.requests import Request

from gateway.api.wire import READ
from gateway.domain.codings import Oversized, UnknownCoding, decoder, parse_codings
from gateway.errors import BadRequest, BodyTooLarge, UnsupportedMediaType

PIECE = 2**20
"""Bytes that are taken at once, off the loop."""


async def receive(
    request: Request, take: Callable[[bytes], object], limit: int, stall_s: float, frame: int = 0
) -> None:
    """Hand `take` the body without its codings, off the loop. Of it `frame` bytes do not count.

    Raises BodyTooLarge above `limit` bytes, BadRequest when the body stalls or breaks off, UnsupportedMediaType for a
    coding that is not known, and what `take` raises.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit + frame:
        raise _too_large(limit)
    reading = _Reading(request.headers.get("content-encoding", ""), take, limit, frame)
    waiting, more = bytearray(), True
    while more:
        data, more = await _piece(request, stall_s)
        waiting += data
        if len(waiting) >= PIECE or not more:
            await asyncio.to_thread(reading.feed, bytes(waiting))
            waiting.clear()
    reading.close()


class _Reading:
    def __init__(self, header: str, take: Callable[[bytes], object], limit: int, frame: int) -> None:
        try:
            codings = parse_codings(header)
        except UnknownCoding:
            raise UnsupportedMediaType(f"Content-Encoding {header[:80]} is not read here; {READ} are.") from None
        self._decoder = decoder(codings) if codings else None
        self._take, self._limit, self._left = take, limit, limit + frame

    def feed(self, data: bytes) -> None:
        """Off the loop only."""
        if self._decoder is not None:
            try:
                data = self._decoder.feed(data, self._left)
            except Oversized:
                raise _too_large(self._limit) from None
            except ValueError as error:
                raise _garbled(str(error)) from error
        self._left -= len(data)
        if self._left < 0:
            raise _too_large(self._limit)
        self._take(data)

    def close(self) -> None:
        if self._decoder is not None and not self._decoder.ended:
            raise _garbled("it breaks off")


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body is larger than {limit} bytes; split it.")


def _garbled(why: str) -> BadRequest:
    return BadRequest(f"The body is not what its content-encoding says: {why}.")


async def _piece(request: Request, stall_s: float) -> tuple[bytes, bool]:
    """(bytes, are there more)."""
    try:
        async with asyncio.timeout(stall_s):
            message = await request.receive()
    except TimeoutError:
        raise BadRequest(f"Nothing of the body arrived for {stall_s:g} seconds.") from None
    if message["type"] == "http.disconnect":
        raise BadRequest("The client left before its body was whole.")
    return message.get("body", b""), message.get("more_body", False)
