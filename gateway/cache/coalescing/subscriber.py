"""The answer as one subscriber of a shared call reads it."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.cache.coalescing.shared_call import SharedCall
from gateway.domain.answer import Answer, Sink
from gateway.domain.money.usage import Usage
from gateway.domain.record import Attempt
from gateway.errors import StreamBroken


class Subscriber:
    """Implements `Answer` for one subscriber. Reads a shared call's answer from its beginning, at the client's
    speed.
    """

    attempt: Attempt | None = None
    stream, status, content_type = False, 200, ""
    """The values of the answer. They are valid after the answer has begun."""
    _answer: Answer
    """The answer of the request that pays for the call."""
    ending = b""
    complete = False

    def __init__(self, shared: SharedCall, *, pays: bool = False, silent: bool = False) -> None:
        """`pays`: whether the subscriber belongs to the request that pays for the call. `silent`: whether it waits
        for the end of the answer and reads no pieces.
        """
        self.shared, self.silent = shared, silent
        self.at = 0
        """Number of pieces that this subscriber has read."""
        self._pays = pays
        shared.subscribers.add(self)

    async def begin(self) -> bool:
        """Wait for the first bytes of the answer. A silent subscriber waits for the end.

        Returns False if the call failed before that, or if its answer is not shared. The caller may then make
        another call.
        """
        shared = self.shared
        try:
            await shared.ready(whole=self.silent)
        except BaseException:
            await self.aclose()
            raise
        if shared.error is not None or (shared.may_be_cut and not self._pays):
            await self.aclose()
            return False
        assert shared.answer is not None
        self._answer = answer = shared.answer
        self.stream, self.status, self.content_type = answer.stream, answer.status, answer.content_type
        if shared.over and not shared.count:
            self._end()
        return True

    @property
    def over(self) -> bool:
        return self.shared.over and self.at >= self.shared.count

    @property
    def finish(self) -> str:
        return self._answer.finish

    @property
    def choices(self) -> list[dict[str, Any]] | None:
        return self._answer.choices

    async def pipe_to(self, take: Sink) -> bool:
        """Pass the pieces of the answer to `take`. Pieces that have already arrived come first.

        The subscriber that pays gets the call's own error. All others get StreamBroken. A subscriber that reads too
        slowly gets StreamBroken, too.
        """
        shared = self.shared
        while True:
            if self.at < shared.first:
                shared.leave(self)
                raise StreamBroken("This client read its answer too slowly beside others that share it; ask again.")
            for piece in shared.pieces_from(self.at):
                self.at += 1
                if not take(piece):
                    return True
            if shared.error is not None:
                raise self._own_error(shared.error)
            if shared.over:
                self._end()
                return False
            paused: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            shared.live[self] = take, paused
            shared.request_more()
            try:
                if await paused:
                    return True
            finally:
                shared.live.pop(self, None)

    def _own_error(self, error: Exception) -> Exception:
        """The error for this subscriber. Only the request that pays gets the call's own error, because this error
        may name its budget or deadline.
        """
        if self._pays:
            return error
        return StreamBroken("The answer that this request shared with another one broke off; ask again.")

    def _end(self) -> None:
        self.ending, self.complete = self.shared.ending, self._answer.complete

    def completion(self) -> bytes | None:
        return self._answer.completion()

    def delivered_text(self) -> str:
        return self._answer.delivered_text()

    def delivered_characters(self) -> int:
        return self._answer.delivered_characters()

    async def cut(self, delivered: Usage) -> bool:
        """Returns False: the answer cannot be ended early, because other subscribers read it too."""
        return False

    async def aclose(self) -> None:
        """Leave the call. The last subscriber also waits until the call has finished."""
        shared = self.shared
        shared.leave(self)
        if not shared.subscribers:
            await shared.finished()
