"""A backend's answer: relayed as a stream, or read to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from gateway.backends.plausible import checked_usage
from gateway.backends.providers.base import Call, Upstream
from gateway.backends.resilience.breaker import Slot
from gateway.dialects.base import Plain, StreamReader
from gateway.dialects.facts import FACTS
from gateway.domain.answer import Sink
from gateway.domain.money.usage import Usage
from gateway.domain.record import Attempt
from gateway.errors import BackendError, BackendGarbage, DeadlineExceeded, FaultyAnswer, StreamBroken

MISREAD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Exceptions that a reader may raise if values in the backend's answer have wrong types."""
_GRACE_S = 0.1
"""Seconds that a backend gets, after its last event, to end the response. If the response ends in time, the connection
can be reused."""

_MOST_COUNTED = 64 * 1024
"""Maximum bytes that are read and counted after the gateway has ended an answer early. A backend that sends more does
not stop."""


def content_chunks(reader: StreamReader) -> int:
    """The number of chunks that contain content."""
    return max(0, reader.chunks - reader.silent)


def misread(answer: object) -> BackendGarbage:
    """The error for an answer that could not be parsed. `answer`: the object (reader or translator) that failed to
    parse it."""
    return BackendGarbage(f"The backend's answer has values of wrong types ({type(answer).__name__} cannot read it).")


class Relayed:
    """Implements `Answer` over a stream. Passes the bytes on unchanged, while a reader parses them."""

    stream = True
    status = 200
    choices: list[dict[str, Any]] | None = None

    def __init__(
        self,
        upstream: Upstream,
        reader: StreamReader,
        attempt: Attempt,
        slot: Slot,
        call: Call,
        *,
        time: Callable[[], float],
    ) -> None:
        self.attempt: Attempt = attempt
        attempt.reporter = reader
        self.ending = b""
        self.complete = False
        self.finish = ""
        self._upstream, self._reader, self._slot = upstream, reader, slot
        self._read = reader.feed
        self._beginning = b""
        self._comments_until = 0.0
        self._most_counted = 0
        self.content_type = FACTS[call.request.dialect].stream_type
        self._call = call
        self._time = time

    @property
    def over(self) -> bool:
        return self._reader.ended

    async def begin(self) -> None:
        """Read up to the first event that can be passed on. No byte has been sent to the client when this method
        returns. Raises BackendError."""
        attempt = self.attempt
        self._comments_until = asyncio.get_running_loop().time() + self._call.first_byte_timeout
        try:
            if not await self._upstream.pipe_to(self._begins):
                self._end()
        except FaultyAnswer:
            attempt.usage = self._usage()  # the answer is over, so the reported usage is final
            raise
        if not self._beginning and not self._reader.finish:
            raise BackendGarbage(f"{attempt.backend.name} answered with an empty stream", backend=attempt.backend.name)
        self._slot.began()

    def _begins(self, piece: bytes) -> bool:
        """Store `piece`, one of the first pieces of the answer. Returns whether more pieces must be read before the
        answer counts as begun."""
        reader, attempt = self._reader, self.attempt
        if attempt.first_byte_at is None:
            attempt.first_byte_at = self._time()
        self._beginning += self._parse(piece)
        attempt.came(len(piece), content_chunks(reader))
        if reader.chunks or reader.finish or reader.ended:
            return False
        return not self._beginning or asyncio.get_running_loop().time() < self._comments_until

    def _parse(self, piece: bytes) -> bytes:
        try:
            return self._read(piece)
        except MISREAD as error:
            raise misread(self._reader) from error

    def _end(self) -> None:
        try:
            self._reader.eof()
        except MISREAD as error:
            raise misread(self._reader) from error

    async def pipe_to(self, take: Sink) -> bool:
        """Pass each piece to `take` as it arrives, until `take` returns False. Raises StreamBroken and
        DeadlineExceeded.

        Returns True if the answer may have more pieces. Returns False if nothing but the terminating event (`ending`)
        is left.
        """
        if self.complete:
            return False
        first, self._beginning = self._beginning, b""
        if first and not take(first):
            return True
        reader, read, came = self._reader, self._read, self.attempt.came
        wants = True

        def relay(piece: bytes) -> bool:
            nonlocal wants
            try:
                out = read(piece)
            except MISREAD as error:
                raise misread(reader) from error
            came(len(piece), content_chunks(reader))
            wants = take(out)  # also if it is empty: hidden text must be paid for too
            return wants and not reader.ended

        try:
            if not reader.ended and await self._upstream.pipe_to(relay) and not reader.ended:
                return True
            if not wants:
                return True  # all pieces were read, but `take` returned False before `ending`
            self._end()
        except BackendError as error:
            self._broken(error)
        self._complete()
        return False

    def _complete(self) -> None:
        reader, attempt = self._reader, self.attempt
        self.ending, self.finish, self.complete = reader.ending, reader.finish, True
        attempt.usage, attempt.confidence = self._usage(), self.confidence
        if attempt.usage is not None:
            attempt.reporter = None
        attempt.outcome, attempt.ended_at = "ok", self._time()
        attempt.learn_pace()
        self._slot.succeeded()

    def _broken(self, error: BackendError) -> None:
        """Store the failure in the attempt and raise it. No other backend is called, because the client already has
        a part of this answer.
        """
        reader, attempt = self._reader, self.attempt
        self.finish = reader.finish
        attempt.ended_at = self._time()
        if reader.finish:  # the reported usage is incomplete if it arrived before the finish reason
            attempt.usage = self._usage()
        name = attempt.backend.name
        if self._call.out_of_time:
            self._slot.left()
            attempt.error = DeadlineExceeded.code
            raise DeadlineExceeded(
                f"The answer of {name} was still under way at the request's deadline; allow more time, or ask for less."
            ) from error
        self._call.conceal(error)  # before the message is logged and kept as the backend's trouble
        if isinstance(error, FaultyAnswer):
            self._slot.succeeded(answered=False)
        else:
            self._slot.failed(error)
        attempt.error = error.code
        broken = StreamBroken(f"The stream of {name} broke: {error.message}", backend=name)
        if isinstance(error, StreamBroken):
            broken.kind, broken.status = error.kind, error.status
        raise broken from error

    def _usage(self) -> Usage | None:
        """The usage that the backend reported. Impossible counts are replaced by estimates."""
        echoed = "echo" in self._call.request.body
        return checked_usage(self._reader.usage, self.attempt, self._reader, echoed=echoed)

    @property
    def confidence(self) -> float | None:
        """The confidence of the answer so far; None if unknown."""
        try:
            return self._reader.confidence
        except MISREAD:
            return None

    def completion(self) -> bytes | None:
        try:
            return self._reader.completion() if self.complete else None
        except MISREAD:
            return None

    def delivered_text(self) -> str:
        try:
            return self._reader.delivered_text()
        except MISREAD:
            return ""

    def delivered_characters(self) -> int:
        return self._reader.delivered_characters()

    async def cut(self, delivered: Usage) -> bool:
        """End the answer here with the finish reason `length`. `delivered`: usage of the delivered part. Returns False
        if the dialect cannot end an answer early."""
        try:
            ending = self._reader.cut(delivered)
        except MISREAD:
            return False
        if ending is None:
            return False
        self.ending, self.finish = ending, "length"
        self._most_counted = self.attempt.output_bytes + _MOST_COUNTED
        try:
            if self._upstream.half_close():
                async with asyncio.timeout(_GRACE_S):
                    await self._upstream.pipe_to(self._count)
        except (TimeoutError, BackendError):
            pass  # an error does not matter, because the gateway ended this stream early
        finally:
            await self._upstream.aclose()
        self.attempt.ended_at = self._time()
        if self._reader.ended:  # the answer had already ended by itself
            self.attempt.usage = self._usage()
        return True

    def _count(self, piece: bytes) -> bool:
        """Count a piece that arrived after the gateway had ended the answer early. The client does not get it. Returns
        whether more pieces may follow."""
        self._parse(piece)
        self.attempt.came(len(piece), content_chunks(self._reader))
        return not self._reader.ended and self.attempt.output_bytes < self._most_counted

    async def aclose(self) -> None:
        """Close the connection. After a complete answer, first wait up to `_GRACE_S` seconds for the backend to
        close it.
        """
        if self.attempt.ended_at is None:
            self.attempt.ended_at = self._time()
        self._slot.left()
        try:
            if self.complete and not self._upstream.whole:
                async with asyncio.timeout(_GRACE_S):
                    await self._upstream.pipe_to(_ignore)
        except (TimeoutError, BackendError):
            pass  # an error does not matter, because the answer is complete
        finally:
            await self._upstream.aclose()


def _ignore(piece: bytes) -> bool:
    return True


class Whole:
    """Implements `Answer` over a plain body that was read completely. The answer has no pieces; `ending` is the whole
    body."""

    stream = False
    status = 200
    content_type = "application/json"
    complete = over = True

    def __init__(self, plain: Plain, attempt: Attempt) -> None:
        self.attempt: Attempt = attempt
        self.ending = plain.body
        self.finish = plain.finish
        self.confidence = plain.confidence
        self.choices = plain.choices
        self._plain = plain

    @property
    def text(self) -> str:
        """The answer's text. Built on demand, because most answers are passed on without reading it."""
        return self._plain.text

    async def pipe_to(self, take: Sink) -> bool:
        """Passes nothing to `take`, and returns False, because a plain answer has no pieces before `ending`."""
        return False

    def completion(self) -> bytes | None:
        return self.ending

    def delivered_text(self) -> str:
        return self.text

    def delivered_characters(self) -> int:
        return len(self.text)

    @property
    def most_characters(self) -> int:
        return len(self.ending)

    async def cut(self, delivered: Usage) -> bool:
        """Returns False, because the whole answer has already been received."""
        return False

    async def aclose(self) -> None:
        """Does nothing, because the connection was released when the body was read."""
