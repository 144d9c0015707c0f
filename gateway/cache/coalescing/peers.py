"""Shares answers in progress with the other workers of this host. Each worker has one unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from gateway.cache.coalescing.peer_answer import PIECE, PeerAnswer, Question, write_end, write_frame, write_head
from gateway.cache.coalescing.registry import SharedCalls
from gateway.cache.coalescing.shared_call import SharedCall
from gateway.cache.coalescing.subscriber import Subscriber
from gateway.cache.store.bodies import Stored
from gateway.domain.request import CompletionRequest
from gateway.errors import StateUnavailable, StreamBroken
from gateway.runtime.tasks import Tasks

_AHEAD_BYTES = 2**16
"""Maximum number of bytes that wait until the other worker has read them. While more bytes wait, nothing is sent."""


class Peers:
    """Sends this worker's answers to other workers, and fetches theirs. Only processes of the same user can connect."""

    def __init__(self, folder: Path, calls: SharedCalls, stored: Callable[[bytes], Awaitable[Stored | None]]) -> None:
        """`folder`: contains the sockets. `stored(digest)` returns an answer that this worker has stored and that
        other workers may not know yet.
        """
        self._folder, self._calls, self._stored = folder, calls, stored
        self._server: asyncio.Server | None = None
        self._tasks = Tasks()

    async def open(self) -> None:
        """Open the socket of this worker. Raises OSError."""
        path = self._path(os.getpid())
        await asyncio.to_thread(self._remove_stale_sockets)
        self._server = await asyncio.start_unix_server(self._serve, path)

    def _remove_stale_sockets(self) -> None:
        """Remove the sockets of killed workers. One of them may have had this worker's process id."""
        for path in self._folder.iterdir():
            if path.name.isdigit() and (int(path.name) == os.getpid() or not _is_running(int(path.name))):
                path.unlink(missing_ok=True)

    async def aclose(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
            self._path(os.getpid()).unlink(missing_ok=True)
        await self._tasks.aclose()

    def _path(self, process: int) -> Path:
        return self._folder / str(process)

    # -- serve ---------------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._tasks.spawn(self._respond(reader, writer), "answer for a peer")
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        subscriber = None
        try:
            asked = await Question.read(reader)
            shared = self._calls.find(asked.digest, asyncio.get_running_loop().time() + asked.left_s)
            if shared is None:
                await self._send_stored(asked.digest, writer)
                return
            subscriber = Subscriber(shared, silent=not asked.live or shared.form != (asked.stream, asked.usage))
            watch = self._tasks.spawn(_cancel_on_close(reader, asyncio.current_task()), "peer's hang-up")
            try:
                if await subscriber.begin():
                    await self._send_shared(subscriber, writer)
            finally:
                watch.cancel()
        except (OSError, EOFError, struct.error, StreamBroken, StateUnavailable):
            return
        finally:
            writer.close()
            if subscriber is not None:
                await subscriber.aclose()

    async def _send_stored(self, digest: bytes, writer: asyncio.StreamWriter) -> None:
        """Send the stored answer of a call that has just ended."""
        stored = await self._stored(digest)
        if stored is not None:
            write_head(writer, live=False, stream=False, status=200, content_type="application/json")
            write_end(writer, stored, complete=True, finish="", replayable=True)
            await writer.drain()

    async def _send_shared(self, subscriber: Subscriber, writer: asyncio.StreamWriter) -> None:
        """Send the pieces of the answer as they arrive, and then the last frame.

        A silent subscriber waits for the end of the answer, and gets only the last frame. If the usage is unknown, the
        last frame is not sent.
        """

        def put(piece: bytes) -> bool:
            write_frame(writer, PIECE, piece)
            return writer.transport.get_write_buffer_size() < _AHEAD_BYTES

        live, shared = not subscriber.silent, subscriber.shared
        write_head(
            writer,
            live=live,
            stream=subscriber.stream,
            status=subscriber.status,
            content_type=subscriber.content_type,
        )
        while live and await subscriber.pipe_to(put):
            await writer.drain()
        answer, paid = shared.answer, shared.paid
        assert answer is not None
        if paid.usage is None:
            return
        completion = answer.completion() if answer.complete else None
        write_end(
            writer,
            Stored(completion or b"", paid.usage, *paid[1:]),
            complete=answer.complete,
            finish=answer.finish,
            replayable=completion is not None,
            ending=shared.ending if live and shared.ending != completion else b"",
        )
        await writer.drain()

    # -- fetch ---------------------------------------------------------------------------------------------------------

    async def fetch(
        self, process: int, shared: SharedCall, request: CompletionRequest, *, live: bool, deadline: float
    ) -> None:
        """Get the answer that the worker with process id `process` is receiving, and publish it on `shared`.
        `deadline`: loop time.

        `live`: pass pieces on as they arrive, if their form fits `request`. Raises StreamBroken if there is no such
        call, or it fails.
        """
        try:
            reader, writer = await asyncio.open_unix_connection(self._path(process))
        except OSError as error:
            raise StreamBroken("The worker that was answering is gone.") from error
        try:
            left_s = min(deadline - asyncio.get_running_loop().time(), 1e9)
            writer.write(Question(shared.digest, live, *shared.form, left_s).encode())
            answer = PeerAnswer(reader)
            await answer.begin()
            if not answer.live:
                await answer.pipe_to(lambda _: True)
                answer.replay(request)
            await shared.publish(answer)
        finally:
            writer.close()


async def _cancel_on_close(reader: asyncio.StreamReader, responding: asyncio.Task[Any] | None) -> None:
    """Cancel `responding` when the asking worker closes the connection. The asking worker sends nothing after its
    question."""
    await reader.read(1)
    if responding is not None:
        responding.cancel()


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
