"""Answers that come from a backend: relayed as a stream, or read whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from gateway.backends.health import Place
from gateway.backends.upstream import Call, Upstream
from gateway.dialects.wire import Plain, StreamReader
from gateway.domain.record import Attempt
from gateway.errors import BackendError, BackendGarbage, DeadlineExceeded, StreamBroken

_GRACE_S = 0.1
"""After its last event a backend may take this long to end the response, so that the connection can be kept."""


def told(reader: StreamReader) -> int:
    """Chunks that carry content: the first only says who speaks, the last only why it ended."""
    return max(0, reader.chunks - 1 - bool(reader.finish))


class Relayed:
    """Implements `Answer` over a stream: bytes in, bytes out, nothing between but the reader's look at them."""

    stream = True
    status = 200
    content_type = "text/event-stream; charset=utf-8"

    def __init__(
        self,
        upstream: Upstream,
        reader: StreamReader,
        attempt: Attempt,
        place: Place,
        call: Call,
        *,
        time: Callable[[], float],
    ) -> None:
        self.attempt: Attempt = attempt
        self.ending = b""
        self.complete = False
        self.finish = ""
        self._upstream, self._reader, self._place = upstream, reader, place
        self._pieces = aiter(upstream)
        self._first = b""
        self._call = call
        self._time = time

    async def begin(self) -> None:
        """Read until there is an event to pass on. Raises BackendErrors: nobody has seen a byte yet.

        Comments that only keep the connection alive are no beginning, until `first_byte_timeout` has passed.
        """
        reader, attempt = self._reader, self.attempt
        now = asyncio.get_running_loop().time
        patient_until = now() + self._call.first_byte_timeout
        async for piece in self._pieces:
            if attempt.first_byte_at is None:
                attempt.first_byte_at = self._time()
            attempt.output_bytes += len(piece)
            self._first += reader.feed(piece)
            attempt.chunks = told(reader)
            if reader.chunks or reader.finish or reader.ended or (self._first and now() >= patient_until):
                break
        else:
            reader.eof()
        if not self._first:
            raise BackendGarbage(f"{attempt.backend.name} answered with an empty stream", backend=attempt.backend.name)
        self._place.began(streaming=True)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        first, self._first = self._first, b""
        if first:
            yield first
        reader, attempt = self._reader, self.attempt
        try:
            ended = reader.ended
            if not ended:
                async for piece in self._pieces:
                    out = reader.feed(piece)
                    attempt.output_bytes += len(piece)
                    attempt.chunks = told(reader)
                    if out:
                        yield out
                    if reader.ended:
                        break
            reader.eof()
        except BackendError as error:
            self._broken(error)
        self._whole()

    def _whole(self) -> None:
        reader, attempt = self._reader, self.attempt
        self.ending, self.finish, self.complete = reader.ending, reader.finish, True
        attempt.usage, attempt.confidence = reader.usage, reader.confidence
        attempt.outcome, attempt.ended_at = "ok", self._time()
        self._place.succeeded()

    def _broken(self, error: BackendError) -> None:
        """Say so in the attempt and raise: the client has bytes already, so nothing can be tried again."""
        reader, attempt = self._reader, self.attempt
        self.finish = reader.finish
        attempt.ended_at = self._time()
        if reader.finish:  # what is told earlier is not the whole usage
            attempt.usage = reader.usage
        name = attempt.backend.name
        if self._call.out_of_time:
            self._place.left()
            attempt.error = DeadlineExceeded.code
            raise DeadlineExceeded(
                f"The answer of {name} was still under way at the request's deadline; allow more time, or ask for less."
            ) from error
        self._place.failed()
        attempt.error = error.code
        said = self._call.conceal(error.message)
        raise StreamBroken(f"The stream of {name} broke: {said}", backend=name) from error

    def completion(self) -> bytes | None:
        return self._reader.completion() if self.complete else None

    def delivered_text(self) -> str:
        return self._reader.delivered_text()

    async def aclose(self) -> None:
        """Hang up, or let the connection end in order when the answer is whole."""
        if self.attempt.ended_at is None:
            self.attempt.ended_at = self._time()
        self._place.left()
        try:
            if self.complete:
                async with asyncio.timeout(_GRACE_S):
                    async for _ in self._pieces:
                        pass
        except (TimeoutError, BackendError):
            pass  # the answer is whole; only the connection is lost
        finally:
            await self._upstream.aclose()


class Whole:
    """Implements `Answer` over a plain body that is already read: nothing to yield, all of it in `ending`."""

    stream = False
    status = 200
    content_type = "application/json"
    complete = True

    def __init__(self, plain: Plain, attempt: Attempt) -> None:
        self.attempt: Attempt = attempt
        self.ending = plain.body
        self.finish = plain.finish
        self.text = plain.text
        self.confidence = plain.confidence

    async def __aiter__(self) -> AsyncIterator[bytes]:
        nothing: tuple[bytes, ...] = ()
        for piece in nothing:
            yield piece

    def completion(self) -> bytes | None:
        return self.ending

    def delivered_text(self) -> str:
        return self.text

    async def aclose(self) -> None:
        """Its connection was given back when the body was read."""
