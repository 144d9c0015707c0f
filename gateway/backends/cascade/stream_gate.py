"""Holds back the beginning of a stream until it is decided whether the client gets the stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import orjson

from gateway.backends.relay import Relayed
from gateway.dialects.clients import DIALECTS
from gateway.dialects.openai_chat import logprobs
from gateway.dialects.openai_chat.plain import without_logprobs
from gateway.domain.answer import Sink, delivered_at_most
from gateway.domain.money.usage import Usage
from gateway.domain.protocols import Hold
from gateway.domain.record import Attempt
from gateway.domain.request import DialectName

_FIRST_LOOK, _LONGEST_STEP = 4, 64
"""The text is judged for the first time after the first number of chunks. After that, the interval doubles each time,
up to the second number of chunks."""
_MOST_KEPT = 2**20
"""Maximum bytes of a stream that are held back. When this size is exceeded, the stream is released to the client."""


class StreamGate:
    """Implements `Answer` for a stream whose beginning is held back. `muted`: whether log-probabilities are removed
    from the answer, because the client did not ask for them."""

    stream = True
    choices: list[dict[str, Any]] | None = None

    def __init__(self, relayed: Relayed, *, muted: bool = False) -> None:
        self.status, self.content_type = relayed.status, relayed.content_type
        self.attempt: Attempt = relayed.attempt
        self._relayed, self._muted = relayed, muted
        self._kept: deque[bytes] = deque()
        self._size = 0
        self._unsent = b""

    async def hold(self, tokens: float, until: float, money: Hold, stop: Callable[[str], str] = lambda text: "") -> str:
        """Hold the stream back until `tokens` content chunks have arrived, but at most until `until` (loop time).

        `stop`: called with the text so far; a text that is not empty ends the wait and is returned. Without such a
        text, returns an empty string. `money`: the budget's hold for the answer. Raises StreamBroken, DeadlineExceeded,
        and BudgetExhausted.
        """
        attempt, relayed, clock = self.attempt, self._relayed, asyncio.get_running_loop().time
        look = min(_FIRST_LOOK, tokens)

        def keep(piece: bytes) -> bool:
            self._kept.append(piece)
            self._size += len(piece)
            return attempt.chunks < look and attempt.seen <= money.covers and clock() < until

        while True:
            more = await self._read(keep, until)
            if attempt.seen > money.covers:
                await money.grow(delivered_at_most(self, attempt), attempt.seen)
            if attempt.chunks >= look or not more or clock() >= until:
                if why := stop(relayed.delivered_text()):
                    return why
                look = min(look + min(max(look, 1), _LONGEST_STEP), tokens)
            if not more or attempt.chunks >= tokens or clock() >= until or self._size > _MOST_KEPT:
                return ""

    async def _read(self, keep: Sink, until: float) -> bool:
        """Read the stream until `keep` returns False or `until` (loop time) is reached. Returns whether the stream may
        have more pieces."""
        try:
            async with asyncio.timeout_at(until):
                return await self._relayed.pipe_to(keep)
        except TimeoutError:
            return not self._relayed.complete

    @property
    def complete(self) -> bool:
        return self._relayed.complete

    @property
    def over(self) -> bool:
        return self._relayed.over and not self._kept

    @property
    def finish(self) -> str:
        return self._relayed.finish

    @property
    def confidence(self) -> float | None:
        """Mean token probability of the answer so far; None if unknown."""
        return self._relayed.confidence

    @property
    def ending(self) -> bytes:
        ending = self._unsent + self._relayed.ending
        return logprobs.without(ending) if self._muted else ending

    def parsed_choices(self, dialect: DialectName) -> list[dict[str, Any]]:
        """The choices of a complete answer, in the format of a chat completion. Empty if the answer is too long to be
        kept as a whole."""
        body = self._relayed.completion()
        return [] if body is None else DIALECTS[dialect].choices(orjson.loads(body))

    async def pipe_to(self, take: Sink) -> bool:
        if self._muted:
            take = _muting(take)
        while self._kept:
            if not take(self._kept.popleft()):
                return True
        return await self._relayed.pipe_to(take)

    def completion(self) -> bytes | None:
        body = self._relayed.completion()
        return without_logprobs(body) if body is not None and self._muted else body

    def delivered_text(self) -> str:
        return self._relayed.delivered_text()

    def delivered_characters(self) -> int:
        return self._relayed.delivered_characters()

    async def cut(self, delivered: Usage) -> bool:
        if not await self._relayed.cut(delivered):
            return False
        self._unsent, self._size = b"".join(self._kept), 0
        self._kept.clear()
        return True

    async def aclose(self) -> None:
        await self._relayed.aclose()


def _muting(take: Sink) -> Sink:
    return lambda piece: take(logprobs.without(piece))
