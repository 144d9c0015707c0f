"""The messages between two workers of one host that share an answer, and the class that reads such an answer.

The asking worker sends one `Question`. The other worker sends frames: one `HEAD`, any number of `PIECE`, and one
`END`. If the connection closes without `END`, the call has failed, or the other worker has no such call.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any, NamedTuple

import orjson

from gateway.cache.coalescing.source import UNPAID, Paid
from gateway.cache.store.bodies import Stored
from gateway.dialects.replay import Replayed
from gateway.domain.answer import Sink
from gateway.domain.money.usage import Usage
from gateway.domain.record import Attempt
from gateway.domain.request import CompletionRequest
from gateway.errors import StreamBroken

HEAD, PIECE, END = b"h", b"p", b"e"
_FRAME = struct.Struct("=cI")
_QUESTION = struct.Struct("=16s???d")


class Question(NamedTuple):
    """The message that the asking worker sends."""

    digest: bytes
    live: bool
    """Whether the asking worker can use the pieces of the answer as they arrive. It can if the answer has the form that
    the fields `stream` and `usage` name."""
    stream: bool
    usage: bool
    left_s: float
    """Seconds until the deadline of the asking request."""

    def encode(self) -> bytes:
        return _QUESTION.pack(*self)

    @classmethod
    async def read(cls, reader: asyncio.StreamReader) -> Question:
        """Read a question. Raises EOFError, OSError, struct.error."""
        return cls(*_QUESTION.unpack(await reader.readexactly(_QUESTION.size)))


def write_frame(writer: asyncio.StreamWriter, kind: bytes, content: bytes) -> None:
    writer.write(_FRAME.pack(kind, len(content)) + content)


def write_head(writer: asyncio.StreamWriter, *, live: bool, stream: bool, status: int, content_type: str) -> None:
    """Write the first frame. `live`: whether the pieces of the answer follow as they arrive; if not, only the last
    frame follows.
    """
    write_frame(writer, HEAD, orjson.dumps((live, stream, status, content_type)))


def write_end(
    writer: asyncio.StreamWriter, stored: Stored, *, complete: bool, finish: str, replayable: bool, ending: bytes = b""
) -> None:
    """Write the last frame. `replayable`: whether `stored` contains the whole answer. `ending`: last bytes of an answer
    whose pieces were sent already."""
    facts = orjson.dumps((complete, finish, replayable, len(ending)))
    write_frame(writer, END, b"".join((facts, b"\n", ending, stored.encode())))


class PeerAnswer:
    """Implements `Answer` and `Source` for an answer that arrives over the connection to another worker."""

    attempt: Attempt | None = None
    choices: list[dict[str, Any]] | None = None
    stream, status, content_type = False, 200, ""
    ending = b""
    complete = over = live = False
    finish = ""
    paid = UNPAID

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._completion: bytes | None = None
        self._replayed: Replayed | None = None

    @property
    def answer(self) -> PeerAnswer:
        return self

    async def begin(self) -> None:
        """Read the first frame. Raises StreamBroken if the call has failed."""
        kind, head = await self._frame()
        if kind != HEAD:
            raise StreamBroken("Another worker of this host sent a message that this one cannot read.")
        self.live, self.stream, self.status, self.content_type = orjson.loads(head)

    async def _frame(self) -> tuple[bytes, bytes]:
        try:
            kind, size = _FRAME.unpack(await self._reader.readexactly(_FRAME.size))
            return kind, await self._reader.readexactly(size)
        except (OSError, EOFError) as error:
            raise StreamBroken("The worker that was answering closed the connection.") from error

    async def pipe_to(self, take: Sink) -> bool:
        """Pass the pieces of the answer to `take` as they arrive. Raises StreamBroken."""
        if self._replayed is not None:
            return await self._replayed.pipe_to(take)
        while not self.over:
            kind, content = await self._frame()
            if kind == END:
                self._end(content)
            elif not take(content):
                return True
        return False

    def _end(self, content: bytes) -> None:
        facts, _, rest = content.partition(b"\n")
        self.complete, self.finish, replayable, size = orjson.loads(facts)
        stored = Stored.decode(rest[size:])
        self.paid = Paid(stored.usage, stored.cost_pico, stored.backend, stored.model)
        self._completion = stored.completion if replayable else None
        self.ending = rest[:size] or (stored.completion if replayable else b"")
        self.over = True

    def replay(self, request: CompletionRequest) -> None:
        """Replay the whole answer in the form that `request` needs. Raises StreamBroken if the answer is not
        complete."""
        if self._completion is None:
            raise StreamBroken("The answer cannot be given in another form.")
        self._replayed = replayed = Replayed(request, self._completion)
        self.stream, self.content_type, self.ending = replayed.stream, replayed.content_type, replayed.ending
        self.finish = self.finish or replayed.finish

    def completion(self) -> bytes | None:
        return self._completion

    def delivered_text(self) -> str:
        """Returns an empty text, because tokens are counted in the worker that pays for the call."""
        return ""

    def delivered_characters(self) -> int:
        return 0

    async def cut(self, delivered: Usage) -> bool:
        return False

    async def aclose(self) -> None:
        """Does nothing, because `Peers.fetch` closes the connection."""
