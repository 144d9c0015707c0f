"""The caller of an inference request: reads the body, writes the answer, and reports that the client has
disconnected."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from starlette.types import Message, Receive, Scope, Send

from gateway.api.server.asgi import Headers, Pace, closing, read_body, send_whole
from gateway.domain.record import Record
from gateway.runtime.deadlines import Deadlines

T = TypeVar("T")


class Listening(Protocol):
    """A connection that calls a function when the client closes it."""

    def listen(self, react: Callable[[], None]) -> None:
        """Call `react` when the client disconnects, until the caller of this method calls `close`."""
        ...

    def close(self) -> None: ...


class Caller(Listening, Protocol):
    """One request of a client. The endpoint reads the body from this object and writes the answer to it."""

    method: str
    path: str
    query: bytes
    headers: Headers
    """The header fields. Names are in lower case."""

    async def read(self, limit: int, pace: Pace) -> bytes:
        """Read the whole body. Raises BodyTooLarge, RequestTimeout if it arrives too slowly, ConnectionResetError if
        the client has left."""
        ...

    async def whole(self, status: int, headers: Headers, body: bytes, *, pause_s: float = 0.0) -> None:
        """Send a complete answer. The connection's next request is read only after `pause_s`."""
        ...

    def begin(self, headers: Headers) -> None:
        """Begin a stream. The status and the headers are sent together with the first piece."""
        ...

    def put(self, piece: bytes) -> bool:
        """Send a piece of a stream. Returns whether the next piece may follow at once; if not, call `drain` first."""
        ...

    async def drain(self) -> None:
        """Wait until the client has read what the gateway has written."""
        ...

    async def end(self, last: bytes = b"", *, broken: bool = False) -> None:
        """End a stream with `last`, its last piece. `broken`: the answer is incomplete; `last` then contains the
        error.
        """
        ...


class Wrapped:
    """A caller that passes all calls to an inner caller. Subclasses override some of them."""

    def __init__(self, caller: Caller) -> None:
        self.method, self.path, self.query, self.headers = caller.method, caller.path, caller.query, caller.headers
        self._caller = caller

    async def read(self, limit: int, pace: Pace) -> bytes:
        return await self._caller.read(limit, pace)

    def listen(self, react: Callable[[], None]) -> None:
        self._caller.listen(react)

    def close(self) -> None:
        self._caller.close()

    async def whole(self, status: int, headers: Headers, body: bytes, *, pause_s: float = 0.0) -> None:
        await self._caller.whole(status, headers, body, pause_s=pause_s)

    def begin(self, headers: Headers) -> None:
        self._caller.begin(headers)

    def put(self, piece: bytes) -> bool:
        return self._caller.put(piece)

    async def drain(self) -> None:
        await self._caller.drain()

    async def end(self, last: bytes = b"", *, broken: bool = False) -> None:
        await self._caller.end(last, broken=broken)


class HangUp:
    """When a client disconnects, cancels the task that serves this client. The task continues if the answer was
    already sent, or if other requests need it.
    """

    __slots__ = ("_record", "_serving", "answered", "happened")

    def __init__(self, serving: asyncio.Task[Any], record: Record | None = None) -> None:
        self._serving, self._record = serving, record
        self.happened = False
        self.answered = False
        """Set before the last bytes are sent, because servers also report the end of an answer as a disconnection."""

    def __call__(self) -> None:
        if not self.answered and not self.happened:
            self.happened = True
            others = None if self._record is None else self._record.others
            if others is None or not others(self._serving):
                self._serving.cancel()


async def unless_gone(caller: Listening, work: Awaitable[T]) -> T:
    """Await `work` and return its result. If the client disconnects, cancel `work` and raise ConnectionResetError."""
    task = asyncio.current_task()
    assert task is not None
    hang_up = HangUp(task)
    caller.listen(hang_up)
    try:
        return await work
    except asyncio.CancelledError:
        if not hang_up.happened:
            raise
        task.uncancel()
        raise ConnectionResetError("the client left while its request was read") from None
    finally:
        caller.close()


class AsgiLine:
    """A client connection behind any ASGI server. Use it after the whole request has been received: from then on, a
    task waits until the client disconnects.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._watcher: asyncio.Task[None] | None = None

    def listen(self, react: Callable[[], None]) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._watch(react))

    async def _watch(self, react: Callable[[], None]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        react()

    def close(self) -> None:
        watcher, self._watcher = self._watcher, None  # kept, the task and its cancellation would refer to each other
        if watcher is not None:
            watcher.cancel()


class AsgiCaller(AsgiLine):
    """A caller behind any ASGI server."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, deadlines: Deadlines) -> None:
        super().__init__(receive)
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self.headers: Headers = list(scope["headers"])
        self._send, self._deadlines = send, deadlines
        self._unsent: list[Message] = []

    def read(self, limit: int, pace: Pace) -> Coroutine[Any, Any, bytes]:
        return read_body(self._receive, limit, pace, self._deadlines)

    def whole(self, status: int, headers: Headers, body: bytes, *, pause_s: float = 0.0) -> Coroutine[Any, Any, None]:
        return send_whole(self._send, status, [*headers, *closing(status)], body, pause_s=pause_s)

    def begin(self, headers: Headers) -> None:
        self._unsent.append({"type": "http.response.start", "status": 200, "headers": headers})

    def put(self, piece: bytes) -> bool:
        self._unsent.append({"type": "http.response.body", "body": piece, "more_body": True})
        return False

    async def drain(self) -> None:
        unsent, self._unsent = self._unsent, []
        for message in unsent:
            await self._send(message)

    async def end(self, last: bytes = b"", *, broken: bool = False) -> None:
        self._unsent.append({"type": "http.response.body", "body": last})
        await self.drain()
