"""Receives a large body and passes it on while it arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from starlette.requests import Request

from gateway.api.server.asgi import Pace, client_errors, next_message, read_coding
from gateway.api.server.caller import AsgiLine, unless_gone
from gateway.errors import BodyTooLarge
from gateway.runtime.codings import Decoder
from gateway.runtime.off_loop import OffLoop

STALL_S = 30.0
"""Maximum seconds between two pieces."""
PIECE = 2**20
"""Number of bytes that are processed at once, off the event loop."""

Sink = Callable[[bytes], object]


class Uploads:
    """Receives bodies that are too large for memory."""

    def __init__(self, pace: Pace, decoding: OffLoop | None = None) -> None:
        """`decoding`: threads for decoding bodies."""
        self._pace, self._decoding = pace, decoding or OffLoop()

    async def receive(self, request: Request, take: Sink, limit: int, frame: int = 0) -> None:
        """Pass the decoded body to `take`, off the event loop. `frame`: bytes that do not count towards `limit`.

        Raises BodyTooLarge, RequestTimeout, BadRequest, UnsupportedMediaType, ConnectionResetError, and the errors
        of `take`.
        """
        declared = request.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > limit + frame:
            raise _too_large(limit)
        coding = read_coding(request.headers.get("content-encoding", ""))
        reading = _Reading(None if coding is None else Decoder(coding), take, limit, frame, self._decoding)
        loop = asyncio.get_running_loop()
        waiting, more, size, began = bytearray(), True, 0, loop.time()
        while more:
            due = min(began + self._pace.due_s(size), loop.time() + STALL_S)
            message = await next_message(request.receive, due)
            data, more = message.get("body", b""), message.get("more_body", False)
            size += len(data)
            waiting += data
            if more and len(waiting) >= PIECE:
                await reading.feed(bytes(waiting))
                waiting.clear()
        rest = reading.feed(bytes(waiting))
        if coding is None:
            await rest
        else:  # the rest may take long
            await unless_gone(AsgiLine(request.receive), rest)
        reading.close()


class _Reading:
    def __init__(self, decoder: Decoder | None, take: Sink, limit: int, frame: int, decoding: OffLoop) -> None:
        self._decoder, self._decoding = decoder, decoding
        self._take, self._limit, self._left = take, limit, limit + frame

    async def feed(self, data: bytes) -> None:
        if self._decoder is None:
            await self._hand_on(data)
            return
        pieces = self._decoder.pieces(data, self._left)
        with client_errors(_too_large(self._limit)):
            try:
                while decoded := await self._decoding.run(_some, pieces):
                    await self._hand_on(b"".join(decoded))
            except asyncio.CancelledError:
                self._decoder.stopped = True
                raise

    async def _hand_on(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            raise _too_large(self._limit)
        await asyncio.to_thread(self._take, data)

    def close(self) -> None:
        if self._decoder is not None:
            with client_errors(_too_large(self._limit)):
                self._decoder.close()


def _some(pieces: Iterator[bytes]) -> list[bytes]:
    """The next pieces, up to `PIECE` bytes; empty if there are no more."""
    found, size = [], 0
    for piece in pieces:
        found.append(piece)
        size += len(piece)
        if size >= PIECE:
            break
    return found


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body is larger than {limit} bytes; split it.")
