"""Records an answer while it is sent, and replays it to any number of callers during or after the call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import orjson

from gateway.api.server.asgi import Headers
from gateway.api.server.caller import Caller, HangUp, Wrapped

REPLAYED = (b"idempotency-replayed", b"true")


class Recording:
    """The recorded part of the answer to one request. The object belongs to one event loop."""

    def __init__(self) -> None:
        self.status = 0
        """The status; 0: nothing has been recorded yet."""
        self.headers: Headers = []
        self.stream = False
        self.over = False
        self.broken = False
        self.replayed = False
        """Whether the recording was made by another worker or for an earlier request."""
        self.size = 0
        self._pieces: list[bytes] = []
        self._pause_s = 0.0
        self._torn = False
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def good(self) -> bool:
        """Whether the answer is complete and is not an error."""
        return self.over and not self.broken and 200 <= self.status < 300

    def encode(self) -> bytes:
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self.headers]
        return orjson.dumps((self.status, self.stream, headers)) + b"\n" + b"".join(self._pieces)

    def load(self, value: bytes) -> None:
        """Load an encoded recording. Raises ValueError."""
        head, _, body = value.partition(b"\n")
        status, stream, headers = orjson.loads(head)
        self.replayed = True
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        self.begin(status, encoded, stream=stream)
        self.add(body)
        self.end()

    # -- write -----------------------------------------------------------------------------------------------------

    def begin(self, status: int, headers: Headers, *, stream: bool) -> None:
        self.status, self.headers, self.stream = status, headers, stream

    def add(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self.size += len(piece)
        self._tell()

    def end(self, *, broken: bool = False, pause_s: float = 0.0) -> None:
        """Mark the end of the answer. Only the first call counts."""
        if not self.over:
            self.over, self.broken, self._pause_s = True, broken, pause_s
            self._tell()

    def tear(self) -> None:
        """Mark a recording as broken if it is incomplete. Called when the task that writes it has ended."""
        if not self.over:
            self._torn = True
            self.end(broken=True)

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for one in waiting:
            if not one.done():
                one.set_result(None)

    # -- play ------------------------------------------------------------------------------------------------------

    async def play(self, caller: Caller, *, again: bool) -> None:
        """Send the recording to `caller`, also while it is still being written. Ends early if the client
        disconnects.

        `again`: whether the recording was made for another request.
        """
        task = asyncio.current_task()
        assert task is not None
        hang_up = HangUp(task)
        caller.listen(hang_up)
        try:
            while not (self.over or (self.stream and self.status)):
                await self._news()
            headers = [*self.headers, REPLAYED] if again or self.replayed else self.headers
            if self.stream:
                await self._play_stream(caller, headers, hang_up)
            elif not self._torn:
                hang_up.answered = True
                body = b"".join(self._pieces)
                await caller.whole(self.status, headers, body, pause_s=self._pause_s)
        except asyncio.CancelledError:
            if not hang_up.happened:
                raise
            task.uncancel()
        finally:
            caller.close()

    async def _play_stream(self, caller: Caller, headers: Headers, hang_up: HangUp) -> None:
        caller.begin(headers)
        played = 0
        while not self.over:
            if played == len(self._pieces):
                await self._news()
                continue
            piece = b"".join(self._pieces[played:])
            played = len(self._pieces)
            if not caller.put(piece):
                await caller.drain()
        if not self._torn:  # otherwise the owner of the connection breaks it off
            hang_up.answered = True
            await caller.end(b"".join(self._pieces[played:]), broken=self.broken)

    async def _news(self) -> None:
        """Wait until something has been written or the recording has ended."""
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(news)
        await news


class Recorder(Wrapped):
    """A caller that never disconnects: it reads from `caller`, and its answer is recorded."""

    def __init__(self, caller: Caller, recording: Recording) -> None:
        super().__init__(caller)
        self._recording = recording

    def listen(self, react: Callable[[], None]) -> None:
        """Does nothing: if the client disconnects, the recording is kept for the retry."""

    def close(self) -> None:
        """Does nothing, because there is no client that could disconnect."""

    async def whole(self, status: int, headers: Headers, body: bytes, *, pause_s: float = 0.0) -> None:
        self._recording.begin(status, headers, stream=False)
        self._recording.add(body)
        self._recording.end(pause_s=pause_s)

    def begin(self, headers: Headers) -> None:
        self._recording.begin(200, headers, stream=True)

    def put(self, piece: bytes) -> bool:
        self._recording.add(piece)
        return True

    async def drain(self) -> None:
        """Returns at once. No wait is needed: answers have a size limit, and few requests have an idempotency key."""

    async def end(self, last: bytes = b"", *, broken: bool = False) -> None:
        self._recording.add(last)
        self._recording.end(broken=broken)
