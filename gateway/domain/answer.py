"""An answer in progress. Inside the gateway, every answer is a stream."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

from gateway.domain.money.usage import Usage
from gateway.domain.record import Attempt

log = logging.getLogger(__name__)

Sink = Callable[[bytes], bool]
"""A function that takes a piece of an answer. It returns whether it wants the next piece now."""


_CHARACTERS_PER_TOKEN = 4
MOST_PER_CHUNK = 8
"""Maximum characters per chunk with which each chunk counts as one token. A token has about four characters, so longer
chunks have several tokens."""


def delivered_tokens(chunks: int, characters: Callable[[], int], count: Callable[[int], int]) -> int:
    """The number of output tokens of an answer without reported usage. `chunks`: stream events with content, usually
    one token each. `count`: estimates the tokens of longer chunks from the number of characters."""
    try:
        character_count = characters()
        return chunks if character_count <= chunks * MOST_PER_CHUNK else count(character_count)
    except Exception:  # text that cannot be read must not prevent the attempt from being closed
        log.exception("what was delivered could not be read; its chunks are counted")
        return chunks


def delivered_at_most(answer: Answer, attempt: Attempt) -> int:
    """An upper estimate of the output tokens that an answer in progress has delivered. It is the number of chunks, or a
    quarter of the characters if that is larger."""
    try:
        return max(attempt.chunks, -(-answer.delivered_characters() // _CHARACTERS_PER_TOKEN))
    except Exception:  # text that cannot be read must not prevent the hold from being extended
        log.exception("what was delivered could not be read; its bytes are counted")
        return attempt.seen


async def pieces(pipe_to: Callable[[Sink], Awaitable[bool]]) -> AsyncIterator[bytes]:
    """Yield the pieces that `pipe_to` passes on. Each piece is read only when it is requested."""
    poured: list[bytes] = []

    def keep(piece: bytes) -> bool:
        poured.append(piece)
        return False

    while await pipe_to(keep):
        yield poured.pop()


class Answer(Protocol):
    """An answer in the client's dialect. Iterating yields all but the terminating event. `ending`: this event, or the
    whole body of a plain answer; known after the iteration.

    The cost can be booked before `ending` is sent. If the backend's stream breaks, the iteration raises a
    `GatewayError`.
    """

    stream: bool
    status: int
    content_type: str

    @property
    def ending(self) -> bytes: ...

    @property
    def complete(self) -> bool:
        """Whether the backend ended the answer regularly."""
        ...

    @property
    def over(self) -> bool:
        """Whether the terminating event has been read. If it has, the piece that is being passed on is the last one
        before `ending`."""
        ...

    @property
    def finish(self) -> str:
        """The finish reason in OpenAI's terms (stop, length, tool_calls, content_filter …); empty while unknown."""
        ...

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that gave the answer; None for an answer from the cache."""
        ...

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def pipe_to(self, take: Sink) -> bool:
        """Pass each piece to `take` as it arrives. `attempt.chunks` counts the piece before. Returns True if `take`
        wants no more pieces now, False at the end."""
        ...

    def completion(self) -> bytes | None:
        """The complete answer as the plain JSON body of the dialect. None if the answer is incomplete or too large to
        keep."""
        ...

    @property
    def choices(self) -> list[dict[str, Any]] | None:
        """The parsed choices of a chat completion. None if the choices have not been parsed."""
        ...

    def delivered_text(self) -> str:
        """The text that has been received so far. The tokens of an interrupted stream are counted from it. Of a long
        text, only the beginning."""
        ...

    def delivered_characters(self) -> int:
        """Number of characters of all text that has been received so far."""
        ...

    async def cut(self, delivered: Usage) -> bool:
        """Disconnect from the backend and end the answer as if at its length limit. `ending` is set to what the client
        still needs. `delivered`: usage of the delivered part. Returns False if this answer cannot be ended early."""
        ...

    async def aclose(self) -> None:
        """Close the backend's connection. Safe to call twice."""
        ...
