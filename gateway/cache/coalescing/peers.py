"""Subscribes to calls of other workers on this host, over a unix socket each."""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson

from gateway.cache.coalescing.registry import SharedCalls
from gateway.cache.coalescing.shared_call import Paid, SharedCall, Subscriber
from gateway.cache.store.bodies import Stored
from gateway.dialects.replay import Replayed
from gateway.domain.answer import Sink, pieces
from gateway.domain.money.usage import Usage
from gateway.domain.record import Attempt
from gateway.domain.request import CompletionRequest
from gateway.errors import StateUnavailable, StreamBroken
from gateway.runtime.tasks import Tasks

_ASK = struct.Struct("=16s???d")
"""What is asked, whether its bytes are of use as they come and in which form, and for how many seconds."""
_FRAME = struct.Struct("=cI")
_HEAD, _PIECE, _END = b"h", b"p", b"e"
_AHEAD_BYTES = 2**16
"""Written and not yet read by the other side; then it pauses."""


class Peers:
    """The socket of this worker, and the way to those of the others. Only this user's processes reach them."""

    def __init__(self, folder: Path, flights: SharedCalls, stored: Callable[[bytes], Awaitable[Stored | None]]) -> None:
        """`stored(digest)`: a whole answer that this worker has stored and the others may not have read of yet."""
        self._folder, self._calls, self._stored = folder, flights, stored
        self._server: asyncio.Server | None = None
        self._tasks = Tasks()

    async def open(self) -> None:
        """Raises OSError."""
        path = self._path(os.getpid())
        await asyncio.to_thread(self._tidy)
        self._server = await asyncio.start_unix_server(self._serve, path)

    def _tidy(self) -> None:
        """Remove the sockets of workers that were killed, and one that has our number."""
        for path in self._folder.iterdir():
            if path.name.isdigit() and (int(path.name) == os.getpid() or not _lives(int(path.name))):
                path.unlink(missing_ok=True)

    async def aclose(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
            self._path(os.getpid()).unlink(missing_ok=True)
        await self._tasks.aclose()

    def _path(self, process: int) -> Path:
        return self._folder / str(process)

    # -- tell ----------------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        telling = self._tasks.spawn(self._tell(reader, writer), "answer for a peer")
        with contextlib.suppress(asyncio.CancelledError):
            await telling

    async def _tell(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """What ends without an end frame has failed, or was never here."""
        subscriber = None
        try:
            digest, live, stream, usage, left_s = _ASK.unpack(await reader.readexactly(_ASK.size))
            shared = self._calls.find(digest, asyncio.get_running_loop().time() + left_s)
            if shared is None:
                await self._remember(digest, writer)
                return
            subscriber = Subscriber(shared, silent=not live or shared.form != (stream, usage))
            gone = self._tasks.spawn(_hang_up(reader, asyncio.current_task()), "peer's hang-up")
            try:
                if await subscriber.begin():
                    await self._pass_on(shared, subscriber, writer)
            finally:
                gone.cancel()
        except (OSError, EOFError, struct.error, StreamBroken, StateUnavailable):
            return
        finally:
            writer.close()
            if subscriber is not None:
                await subscriber.aclose()

    async def _remember(self, digest: bytes, writer: asyncio.StreamWriter) -> None:
        """What has just ended is stored here already."""
        stored = await self._stored(digest)
        if stored is not None:
            _say(writer, _HEAD, orjson.dumps((False, False, 200, "application/json")))
            _say(writer, _END, b"".join((orjson.dumps((True, "", True, 0)), b"\n", stored.encode())))
            await writer.drain()

    async def _pass_on(self, shared: SharedCall, subscriber: Subscriber, writer: asyncio.StreamWriter) -> None:
        def put(piece: bytes) -> bool:
            _say(writer, _PIECE, piece)
            return writer.transport.get_write_buffer_size() < _AHEAD_BYTES

        live = not subscriber.silent
        _say(writer, _HEAD, orjson.dumps((live, subscriber.stream, subscriber.status, subscriber.content_type)))
        while live and await subscriber.pipe_to(put):
            await writer.drain()
        answer, paid = shared.answer, shared.paid
        assert answer is not None
        if paid.usage is None:
            return
        completion = answer.completion() if answer.complete else None
        ending = shared.ending if live and shared.ending != completion else b""
        facts = orjson.dumps((answer.complete, answer.finish, completion is not None, len(ending)))
        _say(writer, _END, b"".join((facts, b"\n", ending, Stored(completion or b"", paid.usage, *paid[1:]).encode())))
        await writer.drain()

    # -- ask -----------------------------------------------------------------------------------------------------------

    async def fetch(
        self, process: int, shared: SharedCall, request: CompletionRequest, *, live: bool, deadline: float
    ) -> None:
        """Carry on `shared` what `process` is answering. Raises StreamBroken when that is nothing, or fails."""
        try:
            reader, writer = await asyncio.open_unix_connection(self._path(process))
        except OSError as error:
            raise StreamBroken("The worker that was answering is gone.") from error
        try:
            left_s = min(deadline - asyncio.get_running_loop().time(), 1e9)
            writer.write(_ASK.pack(shared.digest, live, *shared.form, left_s))
            told = Told(reader)
            await told.begin()
            if not told.live:
                await told.pipe_to(lambda _: True)
                told.replay(request)
            await shared.publish(told)
        finally:
            writer.close()


class Told:
    """Implements `Answer` and `Source` over a peer's socket."""

    attempt: Attempt | None = None
    choices: list[dict[str, Any]] | None = None
    stream, status, content_type = False, 200, ""
    ending = b""
    complete = over = live = False
    finish = ""
    paid = Paid(None, None, "", "")

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._completion: bytes | None = None
        self._replayed: Replayed | None = None

    @property
    def answer(self) -> Told:
        return self

    async def begin(self) -> None:
        kind, head = await self._frame()
        if kind != _HEAD:
            raise StreamBroken("A worker answered what this one cannot read.")
        self.live, self.stream, self.status, self.content_type = orjson.loads(head)

    async def _frame(self) -> tuple[bytes, bytes]:
        try:
            kind, size = _FRAME.unpack(await self._reader.readexactly(_FRAME.size))
            return kind, await self._reader.readexactly(size)
        except (OSError, EOFError) as error:
            raise StreamBroken("The worker that was answering gave up.") from error

    async def pipe_to(self, take: Sink) -> bool:
        """As an Answer's. Raises StreamBroken."""
        if self._replayed is not None:
            return await self._replayed.pipe_to(take)
        while not self.over:
            kind, told = await self._frame()
            if kind == _END:
                self._end(told)
            elif not take(told):
                return True
        return False

    def _end(self, told: bytes) -> None:
        facts, _, rest = told.partition(b"\n")
        self.complete, self.finish, kept, size = orjson.loads(facts)
        stored = Stored.decode(rest[size:])
        self.paid = Paid(stored.usage, stored.cost_pico, stored.backend, stored.model)
        self._completion = stored.completion if kept else None
        self.ending = rest[:size] or (stored.completion if kept else b"")
        self.over = True

    def replay(self, request: CompletionRequest) -> None:
        """Replay it in the form that `request` needs. Raises StreamBroken if nothing can be replayed."""
        if self._completion is None:
            raise StreamBroken("The answer cannot be given in another form.")
        self._replayed = again = Replayed(request, self._completion)
        self.stream, self.content_type, self.ending = again.stream, again.content_type, again.ending
        self.finish = self.finish or again.finish

    def __aiter__(self) -> AsyncIterator[bytes]:
        return pieces(self.pipe_to)

    def completion(self) -> bytes | None:
        return self._completion

    def delivered_text(self) -> str:
        """Not counted: another request pays for it."""
        return ""

    def delivered_characters(self) -> int:
        return 0

    async def cut(self, delivered: Usage) -> bool:
        return False

    async def aclose(self) -> None:
        """The socket belongs to `Peers.fetch`."""


def _say(writer: asyncio.StreamWriter, kind: bytes, what: bytes) -> None:
    writer.write(_FRAME.pack(kind, len(what)) + what)


async def _hang_up(reader: asyncio.StreamReader, telling: asyncio.Task[Any] | None) -> None:
    """The asking worker sends nothing more; when it closes the connection, it does not listen any more."""
    await reader.read(1)
    if telling is not None:
        telling.cancel()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
