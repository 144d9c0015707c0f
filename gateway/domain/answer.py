"""An answer in progress. Inside the gateway, every answer is a stream."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

from gateway.domain.money.usage import Usage
from gateway.domain.record import Attempt

log = logging.getLogger(__name__)

Sink = Callable[[bytes], bool]
"""A function that takes a piece of an answer and returns whether it wants more now."""


_CHARACTERS_PER_TOKEN = 4
MOST_PER_CHUNK = 8
"""Characters per chunk above which chunks contain more than one token each. A token has about four characters."""


def delivered_tokens(chunks: int, characters: Callable[[], int], count: Callable[[int], int]) -> int:
    """Output tokens of an answer without reported usage. Most backends stream one token per chunk. For others, `count`
    estimates the tokens from the delivered `characters`."""
    try:
        character_count = characters()
        return chunks if character_count <= chunks * MOST_PER_CHUNK else count(character_count)
    except Exception:  # text that cannot be read must not prevent the attempt from being closed
        log.exception("what was delivered could not be read; its chunks are counted")
        return chunks


def delivered_at_most(answer: Answer, attempt: Attempt) -> int:
    """An upper estimate of the output tokens that an answer in progress has delivered so far: its number of chunks or a
    quarter of its characters, whichever is larger. Most texts have at least four characters per token."""
    try:
        return max(attempt.chunks, -(-answer.delivered_characters() // _CHARACTERS_PER_TOKEN))
    except Exception:  # text that cannot be read must not prevent the hold from being extended
        log.exception("what was delivered could not be read; its bytes are counted")
        return attempt.seen


async def pieces(pipe_to: Callable[[Sink], Awaitable[bool]]) -> AsyncIterator[bytes]:
    """Yield the pieces of `pipe_to`. Each piece is read when it is requested."""
    poured: list[bytes] = []

    def keep(piece: bytes) -> bool:
        poured.append(piece)
        return False

    while await pipe_to(keep):
        yield poured.pop()


class Answer(Protocol):
    """An answer in the client's dialect.

    Iterating yields everything except the terminating event. `ending` is that event (`data: [DONE]`), and it is known
    when the iteration has stopped. A plain answer yields nothing, and `ending` is its whole body. So the reader can
    settle the money between the two. If the backend's stream breaks, the iteration raises a `GatewayError`.
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
        """Whether the terminating event has been read, so that only `ending` follows the piece that is being passed
        on."""
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
        """Pass each piece to `take` as it arrives, without a task switch. `attempt.chunks` counts the piece before
        `take` gets it. Returns True if `take` wants no more now, False at the end of the answer."""
        ...

    def completion(self) -> bytes | None:
        """The complete answer as the dialect's plain JSON body; None if it is incomplete or too large to keep."""
        ...

    @property
    def choices(self) -> list[dict[str, Any]] | None:
        """The parsed choices of a chat completion; None if they are not parsed yet."""
        ...

    def delivered_text(self) -> str:
        """The text received so far, for counting the tokens of an interrupted stream. For a long text, only the
        beginning."""
        ...

    def delivered_characters(self) -> int:
        """Characters of all text received so far."""
        ...

    async def cut(self, delivered: Usage) -> bool:
        """End the answer here as if it had reached its length limit: disconnect from the backend at once, and set
        `ending` to what the client still needs. `attempt` counts what the backend sends until it notices. Returns False
        if this kind of answer cannot be cut."""
        ...

    async def aclose(self) -> None:
        """Close the backend's connection. Safe to call twice."""
        ...
