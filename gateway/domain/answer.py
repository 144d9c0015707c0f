"""An answer in progress: a stream inside, whatever the client asked for."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

from gateway.domain.money.usage import Usage
from gateway.domain.record import Attempt

log = logging.getLogger(__name__)

Sink = Callable[[bytes], bool]
"""Takes a piece of an answer; returns whether it wants more now."""


_CHARACTERS_PER_TOKEN = 4
MOST_PER_CHUNK = 8
"""Characters; longer chunks than this, on average, hold more than one token each (a token has about four)."""


def delivered_tokens(chunks: int, characters: Callable[[], int], count: Callable[[int], int]) -> int:
    """Output tokens of an answer without reported usage. Most backends stream one token a chunk; for others, `count`
    estimates the tokens from the delivered `characters`."""
    try:
        said = characters()
        return chunks if said <= chunks * MOST_PER_CHUNK else count(said)
    except Exception:  # text that cannot be read must not keep the attempt from being closed
        log.exception("what was delivered could not be read; its chunks are counted")
        return chunks


def delivered_at_most(answer: Answer, attempt: Attempt) -> int:
    """Output tokens of an answer in progress, rounded up: few texts have fewer characters a token than assumed here."""
    try:
        return max(attempt.chunks, -(-answer.delivered_characters() // _CHARACTERS_PER_TOKEN))
    except Exception:  # text that cannot be read must not keep the answer from being held for
        log.exception("what was delivered could not be read; its bytes are counted")
        return attempt.seen


async def pieces(pipe_to: Callable[[Sink], Awaitable[bool]]) -> AsyncIterator[bytes]:
    """The pieces of `pipe_to` as an iterator: each piece is read when it is asked for."""
    poured: list[bytes] = []

    def keep(piece: bytes) -> bool:
        poured.append(piece)
        return False

    while await pipe_to(keep):
        yield poured.pop()


class Answer(Protocol):
    """Bytes in the client's dialect.

    Iterating yields everything but the terminating event; `ending` is that event (`data: [DONE]`), known once
    iteration stopped. A plain answer yields nothing and has its whole body in `ending`. So whoever relays it can
    settle the money between the two. Iteration raises a `GatewayError` when the backend's stream breaks.
    """

    stream: bool
    status: int
    content_type: str

    @property
    def ending(self) -> bytes: ...

    @property
    def complete(self) -> bool:
        """The backend's end was seen, in order."""
        ...

    @property
    def over(self) -> bool:
        """The terminating event was read: after the piece that is handed on now comes only `ending`."""
        ...

    @property
    def finish(self) -> str:
        """stop, length, tool_calls, content_filter … in OpenAI's words; empty while unknown."""
        ...

    @property
    def attempt(self) -> Attempt | None:
        """None for an answer from the cache."""
        ...

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def pipe_to(self, take: Sink) -> bool:
        """Hand each piece to `take` as it arrives, without a task switch. `attempt.chunks` already counts the piece.
        Returns True when `take` wants no more now, False at the end of the answer."""
        ...

    def completion(self) -> bytes | None:
        """The whole answer as the dialect's plain JSON body, or None when it is not whole or too large to keep."""
        ...

    @property
    def choices(self) -> list[dict[str, Any]] | None:
        """Those of a chat completion, where they are parsed already; else None."""
        ...

    def delivered_text(self) -> str:
        """Text received so far, to count what an interrupted stream delivered; of a long one the beginning."""
        ...

    def delivered_characters(self) -> int:
        """Of all the text received so far."""
        ...

    async def cut(self, delivered: Usage) -> bool:
        """End it here, as an answer that has reached its length: the backend is left at once, and `ending` is what the
        client still has to hear. `attempt` counts what the backend sends until it notices. False: its kind cannot be.
        """
        ...

    async def aclose(self) -> None:
        """Close the backend's connection; safe to call twice."""
        ...
