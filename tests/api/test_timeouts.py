"""Clients that dribble their request or do not read their answer, on real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from gateway.api.server.asgi import Pace
from gateway.api.server.caller import AsgiCaller, Caller
from gateway.api.server.timeouts import MAX_HEAD_BYTES, guarded
from gateway.api.server.uvicorn_protocol import Call
from gateway.runtime.deadlines import Deadlines
from tests.support.waiting import until

HEAD_S, STALL_S = 0.4, 0.8
PIECE = b"x" * 50_000

Answer = Callable[[Caller], Awaitable[None]]


async def short(caller: Caller) -> None:
    await caller.read(10**6, Pace(5.0))
    await caller.whole(200, [], b"ok")


class Application:
    """Answers as the test says: POST /short goes the short way, /asgi the long one."""

    def __init__(self) -> None:
        self.answering: Answer = short
        self.deadlines = Deadlines()
        self.ended = asyncio.Event()

    def socket_at(self, path: bytes) -> bool:
        return False

    def endpoint(self, path: bytes) -> Application | None:
        return self if path == b"/short" else None

    async def answer(self, caller: Caller) -> None:
        try:
            await self.answering(caller)
        finally:
            self.ended.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.answer(AsgiCaller(scope, receive, send, self.deadlines))


class Line:
    """A client's end of a connection, which reads only when told to."""

    def __init__(self, sock: socket.socket, path: str, state: ServerState) -> None:
        self._sock, self._path, self._state = sock, path, state
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._sock, data)

    async def ask(self, body: bytes = b"{}") -> None:
        await self.send(self.head(len(body)) + body)

    def head(self, length: int) -> bytes:
        return b"POST %b HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n" % (self._path.encode(), length)

    async def read(self, most: int = 10**6) -> bytes:
        """What is there, or comes next; empty when the gateway has closed."""
        try:
            async with asyncio.timeout(30):
                return await self._loop.sock_recv(self._sock, most)
        except ConnectionResetError:
            return b""

    async def dropped(self) -> None:
        """Wait until the gateway has given up the connection."""
        await until(lambda: not self._state.connections)

    async def until(self, ending: bytes) -> bytes:
        data = b""
        while not data.endswith(ending) and (more := await self.read()):
            data += more
        return data


@pytest.fixture
async def application() -> Application:
    return Application()


@pytest.fixture(params=["/short", "/asgi"])
async def line(application: Application, request: pytest.FixtureRequest) -> AsyncIterator[Line]:
    app: Any = application
    patience = guarded(head_timeout_s=HEAD_S, stall_s=STALL_S)
    config = uvicorn.Config(app, http=patience, lifespan="off", log_config=None, proxy_headers=False)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    protocol: Any = config.http_protocol_class
    server = await loop.create_server(lambda: protocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()) as sock:
        sock.setblocking(False)
        yield Line(sock, request.param, state)
    server.close()
    for connection in list(state.connections):
        connection.transport.abort()  # type: ignore[union-attr]
    await asyncio.gather(*state.tasks, return_exceptions=True)
    await until(lambda: not state.connections)


async def test_a_client_that_says_nothing_is_left(line: Line) -> None:
    assert await line.read() == b""


@pytest.mark.parametrize(("start", "drop"), [(b"POST /sh", b"o"), (b"", b"\r\n")])
async def test_a_head_that_comes_by_drops_is_not_waited_for(line: Line, start: bytes, drop: bytes) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await line.send(start)
    closed = loop.create_task(line.read())
    while not closed.done() and loop.time() < began + 5:
        try:
            await line.send(drop)
        except OSError:
            break
        await asyncio.sleep(HEAD_S / 10)
    heard = await closed
    assert heard.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in heard


async def test_a_head_that_never_ends_is_cut_off(line: Line) -> None:
    async def pipe_to() -> None:
        await line.send(b"POST /short HTTP/1.1\r\n")
        for _ in range(MAX_HEAD_BYTES):
            await line.send(b"x-more: " + b"y" * 4096 + b"\r\n")
            await asyncio.sleep(0)

    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        await pipe_to()


async def test_between_two_requests_a_client_may_rest(line: Line) -> None:
    for _ in range(2):
        await line.ask()
        assert (await line.until(b"ok")).startswith(b"HTTP/1.1 200")
        await asyncio.sleep(HEAD_S * 1.5)


async def test_a_head_that_comes_in_two_pieces_is_a_head(line: Line) -> None:
    for _ in range(3):
        head = line.head(2)
        await line.send(head[:20])
        await asyncio.sleep(HEAD_S / 4)
        await line.send(head[20:])
        await line.send(b"{}")
        assert (await line.until(b"ok")).startswith(b"HTTP/1.1 200")


async def test_the_body_of_a_refused_request_is_no_head(line: Line, application: Application) -> None:
    async def refuse(caller: Caller) -> None:
        await caller.whole(503, [], b"no")

    application.answering = refuse
    for _ in range(2):
        await line.send(line.head(5 * MAX_HEAD_BYTES))
        assert (await line.until(b"no")).startswith(b"HTTP/1.1 503")
        await line.send(b"x" * 5 * MAX_HEAD_BYTES)


async def test_after_a_pause_the_next_request_is_answered(line: Line, application: Application) -> None:
    async def pauses(caller: Caller) -> None:
        await caller.read(10**6, Pace(5.0))
        await caller.whole(503, [], b"no", pause_s=0.2)

    application.answering = pauses
    loop = asyncio.get_running_loop()
    await line.ask()
    assert (await line.until(b"no")).startswith(b"HTTP/1.1 503")
    told = loop.time()
    application.answering = short
    await line.ask()
    assert (await line.until(b"ok")).startswith(b"HTTP/1.1 200")
    assert loop.time() - told > 0.1


async def put(caller: Caller, piece: bytes) -> None:
    if not caller.put(piece):
        await caller.drain()


async def test_a_client_that_stops_reading_stops_the_writer_and_is_hung_up_on(
    line: Line, application: Application
) -> None:
    written = 0
    gone = asyncio.Event()

    async def pipe_to(caller: Caller) -> None:
        nonlocal written
        await caller.read(10**6, Pace(5.0))
        caller.listen(gone.set)
        caller.begin([])
        while not gone.is_set():
            await put(caller, PIECE)
            written += len(PIECE)
            await asyncio.sleep(0)
        caller.close()

    application.answering = pipe_to
    await line.ask()
    async with asyncio.timeout(30):
        await application.ended.wait()
    assert 0 < written < 20 * 2**20, "the kernel's buffers, and not much more"
    received = 0
    while more := await line.read():
        received += len(more)
    assert received < written + 10**6


async def test_a_client_that_reads_slowly_gets_it_all(line: Line, application: Application) -> None:
    size = 400

    async def pipe_to(caller: Caller) -> None:
        await caller.read(10**6, Pace(5.0))
        caller.begin([])
        for _ in range(size):
            await put(caller, PIECE)
        await caller.end()

    application.answering = pipe_to
    await line.ask()
    received = b""
    for _ in range(10):  # longer than it may take nothing
        await asyncio.sleep(STALL_S / 8)
        received += await line.read(2**21)
    received += await line.until(b"0\r\n\r\n")
    assert received.count(b"x") == size * len(PIECE)


async def test_a_client_that_reads_the_long_end_of_a_stream_slowly_gets_it_all(
    line: Line, application: Application
) -> None:
    size = 40 * 2**20

    async def pipe_to(caller: Caller) -> None:
        await caller.read(10**6, Pace(5.0))
        caller.begin([])
        await put(caller, b"first")
        await asyncio.sleep(0.05)
        if isinstance(caller, Call):  # a little waits for the client already, as it reads slowly
            while not caller.transport.get_write_buffer_size():
                assert caller.put(b"." * 4000)
        await caller.end(b"x" * size)

    application.answering = pipe_to
    await line.ask()
    received = b""
    for _ in range(10):  # longer than it may take nothing
        await asyncio.sleep(STALL_S / 8)
        received += await line.read(2**20)
    received += await line.until(b"0\r\n\r\n")
    assert received.count(b"x") == size


async def test_a_whole_answer_that_nobody_takes_is_dropped(line: Line, application: Application) -> None:
    async def much(caller: Caller) -> None:
        await caller.read(10**6, Pace(5.0))
        await caller.whole(200, [], b"x" * 30 * 2**20)

    application.answering = much
    await line.ask()
    await asyncio.sleep(0.05)
    await line.dropped()
    received = 0
    while more := await line.read():
        received += len(more)
    assert received < 30 * 2**20
