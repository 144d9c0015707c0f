"""An answer in progress. Inside the gateway, every answer is a stream."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from gateway.domain.money.usage import Usage
from gateway.domain.record import Attempt

log = logging.getLogger(__name__)

Sink = Callable[[bytes], bool]
"""A function that takes a piece of an answer. It returns whether it wants the next piece now."""


_CHARACTERS_PER_TOKEN = 4
_ROUGHLY = 4
"""Maximum tokens per chunk of a rough estimate."""
MOST_PER_CHUNK = 8
"""Maximum characters per chunk with which each chunk counts as one token. A token has about four characters, so longer
chunks have several tokens."""


def delivered_tokens(chunks: int, characters: Callable[[], int], count: Callable[[int], int]) -> int:
    """Count the output tokens of an answer whose usage was not reported. `chunks`: number of stream events with
    content, usually one token each. `characters`: returns the number of characters of the answer. `count`: estimates
    the tokens from this number, and is called if the chunks are long."""
    try:
        character_count = characters()
        return chunks if character_count <= chunks * MOST_PER_CHUNK else count(character_count)
    except Exception:  # text that cannot be read must not prevent the attempt from being closed
        log.exception("the delivered text cannot be read, so the chunks are counted as tokens")
        return chunks


def delivered_about(answer: Answer, attempt: Attempt) -> int:
    """An upper estimate as of `delivered_at_most`. It may be several times as high if that saves the work of reading
    the text.
    """
    if attempt.reporter is not None:
        most = -(-attempt.reporter.most_characters // _CHARACTERS_PER_TOKEN)
        if most <= attempt.chunks * _ROUGHLY:
            return max(attempt.chunks, most)
    return delivered_at_most(answer, attempt)


def delivered_at_most(answer: Answer, attempt: Attempt) -> int:
    """An upper estimate of the output tokens that an answer in progress has delivered. It is the number of chunks, or
    a quarter of the number of characters if that is larger.
    """
    try:
        return max(attempt.chunks, -(-answer.delivered_characters() // _CHARACTERS_PER_TOKEN))
    except Exception:  # text that cannot be read must not prevent the hold from being extended
        log.exception("the delivered text cannot be read, so its bytes are counted")
        return attempt.seen


class Answer(Protocol):
    """An answer in the client's dialect. `pipe_to` passes on all events except the last one, which ends the stream.
    `ending`: this last event, or the whole body of an answer without a stream; it is known when `pipe_to` has returned
    False. So the cost can be recorded before `ending` is sent.
    """

    stream: bool
    status: int
    content_type: str

    @property
    def ending(self) -> bytes: ...

    @property
    def complete(self) -> bool:
        """Whether the backend ended the answer regularly, and not too early."""
        ...

    @property
    def over(self) -> bool:
        """Whether the last event has been read from the backend. If it has, only `ending` (the end of the stream) is
        left after the piece that is being passed on now."""
        ...

    @property
    def finish(self) -> str:
        """The finish reason in OpenAI's words (stop, length, tool_calls, content_filter …); empty while it is
        unknown."""
        ...

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that gave the answer; None for an answer from the cache."""
        ...

    async def pipe_to(self, take: Sink) -> bool:
        """Pass each piece to `take` as soon as it arrives. `attempt.chunks` is updated before each call of `take`. If
        something arrives that the client does not get, the piece is empty.

        Returns True if `take` accepts no more pieces at present, False at the end of the answer. Raises a GatewayError
        if the backend's stream breaks."""
        ...

    def completion(self) -> bytes | None:
        """The complete answer as the dialect's JSON body for an answer without a stream. None if the answer is
        incomplete, or too large to keep."""
        ...

    @property
    def choices(self) -> list[dict[str, Any]] | None:
        """The parsed choices of a chat completion; None if the choices were not parsed."""
        ...

    def delivered_text(self) -> str:
        """The text that has arrived so far. The tokens of an interrupted stream are counted from it. If the text is
        long, only its beginning is kept.
        """
        ...

    def delivered_characters(self) -> int:
        """The number of characters of all text that has been received so far."""
        ...

    async def cut(self, delivered: Usage) -> bool:
        """Disconnect from the backend, and end the answer as if its length limit was reached. `ending` then contains
        all that the client still needs. `delivered`: the usage of the delivered part. Returns False if this answer
        cannot be ended early."""
        ...

    async def aclose(self) -> None:
        """Close the connection to the backend. It is safe to call this twice."""
        ...
