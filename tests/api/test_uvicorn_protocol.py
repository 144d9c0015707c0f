"""The short way between socket and endpoint speaks HTTP/1.1 as well as uvicorn's long one beside it."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
import uvicorn
import uvloop
from starlette.types import Receive, Scope, Send

from gateway.api.server.asgi import Pace
from gateway.api.server.caller import Caller, HangUp
from gateway.api.server.uvicorn_protocol import Call, InferenceProtocol
from gateway.errors import BodyTooLarge, RequestTimeout
from gateway.runtime.deadlines import Deadlines
from gateway.runtime.write_batcher import WriteBatcher
from tests.fakes.line import HEAD, Line

Answer = Callable[[Caller], Awaitable[None]]


class Application:
    """Answers POST /v1/chat/completions on the short way, anything else by ASGI with what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self.deadlines = Deadlines()
        self.answer = answer

    def socket_at(self, path: bytes) -> bool:
        return False

    def endpoint(self, path: bytes) -> Application | None:
        return self if path == b"/v1/chat/completions" else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = (await receive())["body"]
        told = f"{scope['method']} {scope['path']}?{scope['query_string'].decode()} {len(scope['headers'])} ".encode()
        length = str(len(told + body)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": told + body})


@asynccontextmanager
async def serving(answer: Answer, **settings: Any) -> AsyncIterator[Callable[[], Awaitable[Line]]]:
    """A server; call what is yielded for a connection to it."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        Application(answer),
        http=type("Protocol", (InferenceProtocol,), {"outgoing": WriteBatcher()}),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        **settings,
    )
    server = uvicorn.Server(config)
    server.capture_signals = NoSignals  # type: ignore[method-assign,assignment]
    running = asyncio.get_running_loop().create_task(server.serve(sockets=[listening]))
    lines: list[Line] = []

    async def connect() -> Line:
        line = Line(*await asyncio.open_connection(*listening.getsockname()))
        lines.append(line)
        return line

    try:
        yield connect
    finally:
        for line in lines:
            line.writer.close()
        server.should_exit = True
        await running
        listening.close()


class Tapped:
    """A transport whose writes are seen."""

    def __init__(self, transport: asyncio.Transport, written: list[bytes]) -> None:
        self.transport, self.written = transport, written

    def write(self, data: bytes) -> None:
        self.written.append(data)
        self.transport.write(data)

    def is_closing(self) -> bool:
        return self.transport.is_closing()

    def get_extra_info(self, name: str) -> Any:
        return self.transport.get_extra_info(name)

    def set_write_buffer_limits(self, high: int) -> None:
        self.transport.set_write_buffer_limits(high)


class NoSignals:
    """The test's own process keeps its handlers."""

    def __enter__(self) -> None: ...

    def __exit__(self, *ending: object) -> None: ...


async def echo(caller: Caller) -> None:
    body = await caller.read(1000, Pace(5.0))
    await caller.whole(200, [(b"x-a", b"1")], b"%d %b" % (len(caller.headers), body))


async def put(caller: Caller, piece: bytes) -> None:
    if not caller.put(piece):
        await caller.drain()


async def stream(caller: Caller) -> None:
    await caller.read(1000, Pace(5.0))
    caller.begin([(b"x-a", b"1")])
    for piece in (b"one", b"", b"two"):
        await put(caller, piece)
    await caller.end(b"three")


async def test_an_answer_that_is_known_whole_comes_with_its_length_and_the_connection_stays() -> None:
    async with serving(echo) as connect:
        line = await connect()
        for body in (b"hello", b"", b"again"):
            line.ask(body)
            assert await line.hear() == (
                200,
                {b"x-a": b"1", b"content-length": str(2 + len(body)).encode()},
                b"2 " + body,
            )


async def test_a_stream_comes_in_chunks_none_of_them_empty() -> None:
    async with serving(stream) as connect:
        line = await connect()
        for _ in range(2):
            line.ask(b"x")
            status, headers, body = await line.hear()
            assert (status, headers, body) == (200, {b"x-a": b"1", b"transfer-encoding": b"chunked"}, b"onetwothree")


async def test_each_piece_of_a_stream_goes_out_at_once() -> None:
    go = asyncio.Event()

    async def slowly(caller: Caller) -> None:
        caller.begin([])
        await put(caller, b"first")
        await go.wait()
        await caller.end(b"last")

    async with serving(slowly) as connect:
        line = await connect()
        line.ask(b"")
        async with asyncio.timeout(30):
            await line.reader.readuntil(b"5\r\nfirst\r\n")
        go.set()
        assert [chunk async for chunk in line.chunks()] == [b"last"]


async def test_head_and_first_piece_go_out_together_and_so_do_last_piece_and_end() -> None:
    written: list[bytes] = []

    async def streamed(caller: Caller) -> None:
        assert isinstance(caller, Call)
        caller.transport = Tapped(caller.transport, written)  # type: ignore[assignment]
        caller.begin([])
        assert not written
        assert caller.put(b"first")
        assert caller.put(b"second")
        await caller.end(b"last")

    async with serving(streamed) as connect:
        line = await connect()
        line.ask(b"")
        assert (await line.hear())[2] == b"firstsecondlast"
    assert [data.split(b"\r\n")[0] for data in written] == [b"HTTP/1.1 200 OK", b"6", b"4"]


async def test_pieces_of_a_stream_wait_for_no_turn_and_never_overtake_what_was_added_before() -> None:
    written: list[bytes] = []
    limits: list[int] = []

    async def streamed(caller: Caller) -> None:
        assert isinstance(caller, Call)
        transport, outgoing = caller.transport, caller._outgoing
        caller.transport = tapped = Tapped(transport, written)  # type: ignore[assignment]
        caller.begin([])
        caller.put(b"1st")
        await asyncio.sleep(0)
        caller.put(b"2nd")
        assert written[-1] == b"3\r\n2nd\r\n"  # already
        limits.append(transport.get_write_buffer_limits()[1])
        outgoing.add(tapped, b"3\r\n3rd\r\n", asyncio.get_running_loop())  # type: ignore[arg-type]
        caller.put(b"4th")
        assert written[-1] == b"3\r\n2nd\r\n"
        await asyncio.sleep(0)
        caller.put(b"5th")
        await caller.end(b"last")
        limits.append(transport.get_write_buffer_limits()[1])

    async with serving(streamed) as connect:
        line = await connect()
        for _ in range(2):  # the connection's next stream begins like the first
            line.ask(b"")
            assert (await line.hear())[2] == b"1st2nd3rd4th5thlast"
    assert limits == [16384, 0] * 2
    assert [data.split(b"\r\n")[1] for data in written[1:6]] == [b"2nd", b"3rd", b"4th", b"5th", b"last"]


@pytest.mark.parametrize("size", [1, 900, 40_000])
def test_a_stream_on_uvloop_pauses_for_a_slow_client_and_arrives_whole_and_in_order(size: int) -> None:
    pieces = [b"%08d" % number + b"." * size for number in range(20_000_000 // (size + 400))]
    pauses: list[int] = []

    async def streamed(caller: Caller) -> None:
        assert isinstance(caller, Call)
        caller.begin([])
        for number, piece in enumerate(pieces):
            if not caller.put(piece):
                pauses.append(number)
                await caller.drain()
            elif number % 7 == 0:
                await asyncio.sleep(0)
        await caller.end(b"last")
        pauses.append(caller.transport.get_write_buffer_size())

    async def heard() -> bytes:
        async with serving(streamed) as connect:
            line = await connect()
            line.ask(b"")
            await asyncio.sleep(0.3)
            if size > 1:
                assert len(pauses) == 1  # it waits, and has not read the whole answer from its backend
            body = (await line.hear())[2]
            line.ask(b"")  # the connection serves the next request
            assert (await line.hear())[2] == body
            return body

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(heard()) == b"".join(pieces) + b"last"


def test_a_client_may_leave_while_the_end_of_a_stream_waits_for_it(caplog: pytest.LogCaptureFixture) -> None:
    async def left() -> str:
        waits: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def streamed(caller: Caller) -> None:
            caller.begin([])
            caller.put(b"first")
            await asyncio.sleep(0)
            while caller.put(b"." * 9000):
                pass
            waits.set_result(None)
            try:
                await caller.end(b"last")
            except Exception as error:
                ended.set_result(repr(error))
                raise
            ended.set_result("ended")

        async with serving(streamed) as connect:
            line = await connect()
            line.ask(b"")
            await waits
            await asyncio.sleep(0.05)  # `end` waits now
            line.writer.transport.abort()
            async with asyncio.timeout(10):
                return await ended

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(left()) == "ended"
    assert not caplog.text


def test_a_client_may_leave_before_it_is_told_to_continue() -> None:
    async def left() -> BaseException | None:
        asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

        async def reads(caller: Caller) -> None:
            asked.set_result(None)
            await asyncio.sleep(0.1)  # as if the client's key were looked up
            try:
                await caller.read(1000, Pace(5.0))
            except Exception as error:
                ended.set_result(error)

        async with serving(reads) as connect:
            line = await connect()
            line.say(HEAD, b"content-length: 5\r\nexpect: 100-continue\r\n\r\n")
            await asked
            line.writer.transport.abort()
            async with asyncio.timeout(10):
                return await ended

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert isinstance(runner.run(left()), ConnectionResetError)


async def test_a_piece_for_a_client_that_left_is_dropped() -> None:
    put = asyncio.get_running_loop().create_future()

    async def streamed(caller: Caller) -> None:
        assert isinstance(caller, Call)
        caller.begin([])
        caller.put(b"first")
        await asyncio.sleep(0)
        caller.transport.abort()
        try:
            put.set_result((caller.put(b"second"), caller.put(b"third")))
        except Exception as error:
            put.set_exception(error)

    async with serving(streamed) as connect:
        line = await connect()
        line.ask(b"")
        assert await put == (True, True)


async def test_bodies_in_pieces_and_chunks_and_after_100_continue_are_read() -> None:
    async with serving(echo) as connect:
        line = await connect()
        line.say(HEAD, b"content-length: 4\r\n\r\nab")
        await asyncio.sleep(0.02)
        line.say(b"cd")
        assert (await line.hear())[2] == b"2 abcd"
        line.say(HEAD, b"transfer-encoding: chunked\r\n\r\n2\r\nef\r\n")
        await asyncio.sleep(0.02)
        line.say(b"1\r\ng\r\n0\r\n\r\n")
        assert (await line.hear())[2] == b"2 efg"
        for expect in (b"expect: 100-continue", b"Expect: 100-Continue"):
            line.say(HEAD, b"content-length: 2\r\n", expect, b"\r\n\r\n")
            assert await line.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            line.say(b"hi")
            assert (await line.hear())[2] == b"3 hi"


async def test_a_body_that_comes_without_100_continue_leaves_the_connection_open() -> None:
    async with serving(echo) as connect:
        line = await connect()
        for _ in range(2):
            line.say(HEAD, b"content-length: 2\r\nexpect: 100-continue\r\n\r\nhi")
            status, headers, body = await line.hear()
            assert (status, body) == (200, b"3 hi")
            assert b"connection" not in headers


async def test_a_request_is_gone_with_its_answer_and_not_left_to_the_garbage_collector() -> None:
    async with serving(echo) as connect:
        line = await connect()
        gc.collect()
        gc.disable()
        try:
            for body in (b"one", b"two", b"three"):
                line.ask(body)
                assert (await line.hear())[2].endswith(body)
            calls = [each for each in gc.get_objects() if type(each) is Call]
        finally:
            gc.enable()
        assert len(calls) <= 1  # the connection keeps its last


async def test_a_body_of_many_pieces_arrives_as_it_was_sent() -> None:
    bodies = [bytes(range(256)) * 8000, b"ab" * 20_000]
    seen: list[bytes] = []

    async def keep(caller: Caller) -> None:
        seen.append(await caller.read(2**22, Pace(5)))
        await caller.whole(200, [], b"")

    async with serving(keep) as connect:
        line = await connect()
        line.ask(bodies[0])
        assert (await line.hear())[0] == 200
        line.say(HEAD, b"transfer-encoding: chunked\r\n\r\n", b"2\r\nab\r\n" * 20_000, b"0\r\n\r\n")
        assert (await line.hear())[0] == 200
    assert seen == bodies


@pytest.mark.parametrize(
    ("sent", "error"), [(b"x" * 1001, BodyTooLarge), (b"x" * 400, RequestTimeout), (b"", RequestTimeout)], ids=str
)
async def test_a_body_that_is_too_long_or_never_ends_is_refused(sent: bytes, error: type[Exception]) -> None:
    seen: list[type[Exception]] = []

    async def strict(caller: Caller) -> None:
        try:
            await caller.read(1000, Pace(0.1))
        except (BodyTooLarge, RequestTimeout) as met:
            seen.append(type(met))
            await caller.whole(400, [], b"no")

    async with serving(strict) as connect:
        line = await connect()
        line.say(HEAD, b"content-length: 5000\r\n\r\n", sent)
        assert (await line.hear())[0] == 400
        assert seen == [error]


async def test_a_client_that_leaves_while_it_sends_is_told_apart() -> None:
    left = asyncio.Event()

    async def patient(caller: Caller) -> None:
        with pytest.raises(ConnectionResetError):
            await caller.read(1000, Pace(5.0))
        left.set()

    async with serving(patient) as connect:
        line = await connect()
        line.say(HEAD, b"content-length: 5\r\n\r\nab")
        await asyncio.sleep(0.02)
        line.writer.close()
        async with asyncio.timeout(30):
            await left.wait()


@pytest.mark.parametrize("answered", [False, True])
async def test_hanging_up_cancels_whoever_serves_unless_there_is_an_answer(answered: bool) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()
    heard: list[bool] = []

    async def long(caller: Caller) -> None:
        await caller.read(1000, Pace(5.0))
        task = asyncio.current_task()
        assert task is not None
        hang_up = HangUp(task)
        hang_up.answered = answered
        caller.listen(hang_up)
        begun.set()
        try:
            await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            task.uncancel()
        finally:
            heard.append(hang_up.happened)
            caller.close()
            ended.set()

    async with serving(long) as connect:
        line = await connect()
        line.ask(b"")
        async with asyncio.timeout(30):
            await begun.wait()
            line.writer.close()
            await ended.wait()
    assert heard == [not answered]


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    async def first_is_slow(caller: Caller) -> None:
        body = await caller.read(1000, Pace(5.0))
        await asyncio.sleep(0.05 if body == b"1" else 0)
        await caller.whole(200, [], body)

    async with serving(first_is_slow) as connect:
        line = await connect()
        for body in (b"1", b"2", b"3"):
            line.ask(body)
        assert [(await line.hear())[2] for _ in range(3)] == [b"1", b"2", b"3"]


async def test_other_requests_on_the_same_connection_go_the_long_way() -> None:
    async with serving(echo) as connect:
        line = await connect()
        line.say(b"GET /health?a=b HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await line.hear())[2] == b"GET /health?a=b 1 "
        line.ask(b"short")
        assert (await line.hear())[2] == b"2 short"
        line.say(b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc")
        assert (await line.hear())[2] == b"POST /v1/files? 2 abc"
        line.say(b"GET /v1/chat/completions HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await line.hear())[2] == b"GET /v1/chat/completions? 1 "
        line.say(HEAD.replace(b"completions", b"completions?beta=true"), b"content-length: 1\r\n\r\nq")
        assert (await line.hear())[2] == b"2 q"


async def test_a_client_that_wants_the_connection_closed_gets_it_closed() -> None:
    async with serving(echo) as connect:
        line = await connect()
        line.ask(b"bye", b"connection: close")
        _, headers, body = await line.hear()
        assert (headers[b"connection"], body) == (b"close", b"3 bye")
        assert await line.closed()


async def test_a_line_break_in_a_header_never_reaches_the_client() -> None:
    async def torn(caller: Caller) -> None:
        await caller.whole(200, [(b"x-a", b"1\r\nx-b: 2")], b"")

    async with serving(torn) as connect:
        line = await connect()
        line.ask(b"")
        assert await line.closed()


async def test_an_endpoint_that_fails_leaves_nobody_waiting(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(caller: Caller) -> None:
        caller.begin([])
        await put(caller, b"half")
        raise RuntimeError("unexpected")

    async with serving(fails) as connect:
        line = await connect()
        line.ask(b"")
        async with asyncio.timeout(30):
            heard = await line.reader.read()
        assert heard.endswith(b"4\r\nhalf\r\n")
    assert "was not answered" in caplog.text


async def test_an_idle_connection_is_closed_in_time_and_a_busy_one_is_not() -> None:
    async def slow(caller: Caller) -> None:
        await caller.read(1000, Pace(5.0))
        await asyncio.sleep(1.2)
        await caller.whole(200, [], b"done")

    async with serving(slow, timeout_keep_alive=1) as connect:
        line = await connect()
        line.ask(b"")
        assert (await line.hear())[2] == b"done"
        assert await line.closed()


async def test_a_client_that_reads_nothing_stops_the_writer() -> None:
    written = 0

    async def flood(caller: Caller) -> None:
        nonlocal written
        caller.begin([])
        for _ in range(1000):
            await put(caller, b"x" * 65536)
            written += 65536
        await caller.end()

    async with serving(flood) as connect:
        line = await connect()
        line.ask(b"")
        before = -1
        while written != before:  # until it stands still
            before = written
            await asyncio.sleep(0.1)
        assert written < 20 * 2**20
        assert len((await line.hear())[2]) == 1000 * 65536


# -- what is no HTTP -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "garbage",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nhost: x\r\n\r\n",
        HEAD + b"content-length: x\r\n\r\n",
        HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
        HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    ],
    ids=lambda raw: raw[-30:].decode("latin-1").encode("unicode_escape").decode(),
)
async def test_what_is_no_http_is_told_so_in_json(garbage: bytes) -> None:
    async with serving(echo) as connect:
        line = await connect()
        line.say(garbage)
        status, headers, body = await line.hear()
        assert (status, headers[b"content-type"], headers[b"connection"]) == (400, b"application/json", b"close")
        assert headers[b"x-request-id"] == headers[b"request-id"]
        assert orjson.loads(body)["error"]["type"] == "invalid_request_error"
        assert await line.closed()


async def test_it_is_told_in_the_shape_of_the_path_where_there_is_one() -> None:
    async with serving(echo) as connect:
        line = await connect()
        line.say(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: x\r\n\r\n")
        assert orjson.loads((await line.hear())[2])["type"] == "error"


async def test_garbage_never_ends_up_inside_an_answer() -> None:
    go = asyncio.Event()

    async def slowly(caller: Caller) -> None:
        caller.begin([])
        await put(caller, b"first")
        await go.wait()
        await caller.end(b"last")

    async with serving(slowly) as connect:
        line = await connect()
        line.ask(b"")
        async with asyncio.timeout(30):
            heard = await line.reader.readuntil(b"first\r\n")
            line.say(b"garbage\r\n\r\n")
            heard += await line.reader.read()
        assert heard.endswith(b"first\r\n")
        go.set()


async def test_a_refusal_before_100_continue_closes_what_nobody_can_tell_apart() -> None:
    async def refuses(caller: Caller) -> None:
        await caller.whole(413, [], b"no")

    async with serving(refuses) as connect:
        line = await connect()
        line.say(HEAD, b"content-length: 99\r\nexpect: 100-continue\r\n\r\n")
        status, headers, _ = await line.hear()
        assert (status, headers[b"connection"]) == (413, b"close")
        assert await line.closed()


async def test_an_offer_of_http_2_is_politely_ignored() -> None:
    """As Java's client makes it with every request to a plain http URL."""
    offer = (b"connection: Upgrade, HTTP2-Settings", b"upgrade: h2c", b"http2-settings: AAEAAEAAAAIAAAABAAMAAABk")
    async with serving(echo) as connect:
        line = await connect()
        for body in (b"one", b"two"):
            line.ask(body, *offer)
            assert (await line.hear())[2] == b"3 " + body  # host, content-length and what is left of connection
        line.say(HEAD, b"upgrade: h2c\r\nconnection: upgrade\r\ntransfer-encoding: chunked\r\n\r\n3\r\nab")
        await asyncio.sleep(0.02)
        line.say(b"c\r\n0\r\n\r\n")
        assert (await line.hear())[2] == b"3 abc"


async def test_other_protocols_are_declined() -> None:
    async with serving(echo) as connect:
        line = await connect()
        for _ in range(2):
            line.say(b"GET /chat HTTP/1.1\r\nhost: x\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\n\r\n")
            assert (await line.hear())[2] == b"GET /chat? 2 "
        line.say(b"CONNECT example.com:443 HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await line.hear())[0] == 405
        assert await line.closed()


@pytest.mark.parametrize("value", [b"1\r\nx-b: 2", b"1\nx-b: 2", b"1\rx-b: 2", b"1\r\n", b"\n"])
async def test_a_header_with_a_line_break_is_not_sent(value: bytes) -> None:
    async def torn(caller: Caller) -> None:
        with pytest.raises(ValueError, match="line break"):
            await caller.whole(200, [(b"x-a", value)], b"")
        await caller.whole(200, [(b"x-a", b"1")], b"whole")

    async with serving(torn) as connect:
        line = await connect()
        line.ask(b"")
        assert (await line.hear())[2] == b"whole"
