"""The connection without a socket: however its bytes are cut up, the response is the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.backends.http.connection import Connection
from gateway.backends.http.response import Response
from gateway.errors import BackendError, BackendGarbage, BackendTimeout, StreamBroken
from gateway.runtime.write_batcher import WriteBatcher

HEAD = b"HTTP/1.1 200 OK\r\nX-One: 1\r\n"
BODY = bytes(range(256)) * 3
CHUNKED = (
    HEAD
    + b"transfer-encoding: chunked\r\n\r\n"
    + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (BODY[:1], BODY[1:300], BODY[300:]))
)
WHOLE = {
    "length": HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY,
    "chunked": CHUNKED + b"0\r\n\r\n",
    "trailer": CHUNKED + b"0\r\nx-two: 2\r\n\r\n",
    "interim": b"HTTP/1.1 103 Early\r\nlink: x\r\n\r\n" + CHUNKED + b"0\r\n\r\n",
}


class Owner:
    """A pool that only takes note."""

    name = "small"

    def __init__(self) -> None:
        self.released = 0
        self.losses = 0
        self.outgoing = WriteBatcher()

    def release(self, connection: Connection) -> None:
        self.released += 1

    def lost(self, connection: Connection) -> None:
        self.losses += 1

    def watch(self, when: float) -> None:
        self.watched = when


class Transport(asyncio.Transport):
    """Swallows what is written; counts pauses."""

    def __init__(self) -> None:
        super().__init__()
        self.paused = False
        self.pauses = 0
        self.aborted = False

    def write(self, data: Any) -> None: ...

    def writelines(self, data: Any) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        assert not self.paused
        self.paused = True
        self.pauses += 1

    def resume_reading(self) -> None:
        assert self.paused
        self.paused = False


async def receive(pieces: list[bytes], *, eof: bool = False) -> tuple[Owner, Transport, bytes | BackendError]:
    """Feed `pieces` to a connection that waits for a response; its body, or the error."""
    owner, transport = Owner(), Transport()
    loop = asyncio.get_running_loop()
    connection = Connection(owner, loop)
    connection.connection_made(transport)
    response = connection.send(b"head", b"body", limit=loop.time() + 9, deadline=loop.time() + 9)
    for piece in pieces:
        connection.data_received(piece)
        if transport.aborted:
            break
    if eof:
        connection.connection_lost(None)
    try:
        await response.begun
        assert response.headers[0] == (b"x-one", b"1")
        return owner, transport, b"".join([piece async for piece in response])
    except BackendError as error:
        return owner, transport, error


def cut_up(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % len(data) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges) if start != end]


@settings(max_examples=60, deadline=None)
@given(framing=st.sampled_from(sorted(WHOLE)), places=st.lists(st.integers(0, 10**6), max_size=12))
def test_a_whole_response_survives_every_cut(framing: str, places: list[int]) -> None:
    owner, transport, body = asyncio.run(receive(cut_up(WHOLE[framing], places)))
    assert body == BODY
    assert owner.released == 1
    assert not transport.aborted


@settings(max_examples=60, deadline=None)
@given(
    framing=st.sampled_from(sorted(WHOLE)),
    end=st.integers(1, 10**6),
    places=st.lists(st.integers(0, 10**6), max_size=6),
)
def test_a_response_that_stops_short_is_never_taken_for_whole(framing: str, end: int, places: list[int]) -> None:
    raw = WHOLE[framing]
    short = raw[: end % (len(raw) - 1) + 1][:-1] or raw[:1]
    owner, _, outcome = asyncio.run(receive(cut_up(short, places), eof=True))
    assert isinstance(outcome, BackendError)
    assert owner.released == 0
    assert owner.losses == 1


@settings(max_examples=60, deadline=None)
@given(
    framing=st.sampled_from(sorted(WHOLE)),
    places=st.lists(st.integers(0, 10**6), max_size=6),
    evil=st.binary(min_size=1),
)
@example(framing="length", places=[], evil=b"H")
@example(framing="chunked", places=[], evil=b"\r\nH")
@example(framing="chunked", places=[], evil=WHOLE["length"])
@example(framing="interim", places=[], evil=b"\n")
def test_what_follows_a_whole_response_never_gets_into_it(framing: str, places: list[int], evil: bytes) -> None:
    owner, transport, body = asyncio.run(receive(cut_up(WHOLE[framing] + evil, places)))
    assert body == BODY
    if evil.strip(b"\r\n"):  # blank lines between responses are no response
        assert transport.aborted
        assert owner.losses == 1


@settings(max_examples=100, deadline=None)
@given(junk=st.binary(max_size=300), places=st.lists(st.integers(0, 10**6), max_size=6))
def test_junk_ends_in_an_error_of_ours(junk: bytes, places: list[int]) -> None:
    raw = CHUNKED + b"G" + junk
    _, transport, outcome = asyncio.run(receive(cut_up(raw, places), eof=True))
    assert isinstance(outcome, BackendGarbage)
    assert transport.aborted


async def test_reading_pauses_at_the_bound_and_goes_on_when_the_consumer_does() -> None:
    owner, transport = Owner(), Transport()
    loop = asyncio.get_running_loop()
    connection = Connection(owner, loop)
    connection.connection_made(transport)
    response = connection.send(b"head", b"body", limit=loop.time() + 9, deadline=loop.time() + 9)
    connection.data_received(HEAD + b"content-length: 10000000\r\n\r\n")
    await response.begun
    fed = 0
    while transport.pauses == 0:
        connection.data_received(b"x" * 8192)
        fed += 8192
    assert fed == 65536
    assert len(await anext(response)) == fed
    more = loop.create_task(anext(response))
    await asyncio.sleep(0)
    assert transport.pauses == 1
    assert not transport.paused
    connection.data_received(b"y")
    assert await more == b"y"
    await response.aclose()
    with pytest.raises(StreamBroken):
        await anext(response)
    assert owner.losses == 1


def keeping(got: list[bytes], *, more: bool) -> Callable[[bytes], bool]:
    """Keeps what it is handed; `more`: whether it wants to go on."""

    def keep(piece: bytes) -> bool:
        got.append(piece)
        return more

    return keep


async def opened(stall_timeout: float = 9.0) -> tuple[Owner, Transport, Connection, Response]:
    """A connection whose response has a head and no end."""
    owner, transport = Owner(), Transport()
    loop = asyncio.get_running_loop()
    connection = Connection(owner, loop)
    connection.connection_made(transport)
    now = loop.time()
    response = connection.send(b"head", b"body", limit=now + 9, deadline=now + 90, stall_timeout=stall_timeout)
    connection.data_received(HEAD + b"content-length: 10000000\r\n\r\n")
    await response.begun
    return owner, transport, connection, response


async def test_what_is_poured_is_handed_on_while_the_pouring_task_sleeps() -> None:
    _, _, connection, response = await opened()
    got: list[bytes] = []
    pouring = asyncio.ensure_future(response.pipe_to(keeping(got, more=True)))
    await asyncio.sleep(0)
    for piece in (b"one", b"two"):
        connection.data_received(piece)
        assert got[-1] == piece  # already, without another round of the loop
    assert not pouring.done()
    pouring.cancel()
    await asyncio.gather(pouring, return_exceptions=True)
    connection.data_received(b"three")
    assert got == [b"one", b"two"]
    await response.aclose()


async def test_pouring_stops_when_asked_and_goes_on_with_what_came_meanwhile() -> None:
    _, transport, connection, response = await opened()
    got: list[bytes] = []
    pouring = asyncio.ensure_future(response.pipe_to(keeping(got, more=False)))
    await asyncio.sleep(0)
    for piece in (b"one", b"two", b"three"):
        connection.data_received(piece)
    assert await pouring
    assert got == [b"one"]
    connection.data_received(b"x" * 65536)
    assert transport.paused, "a consumer that does not come back bounds what is read"
    assert await response.pipe_to(keeping(got, more=False))
    assert got[1].startswith(b"twothree")
    await response.aclose()


async def test_an_error_of_whoever_is_poured_to_reaches_the_task_and_not_the_loop() -> None:
    _, _, connection, response = await opened()

    def fails(piece: bytes) -> bool:
        raise ValueError(piece)

    pouring = asyncio.ensure_future(response.pipe_to(fails))
    await asyncio.sleep(0)
    connection.data_received(b"one")
    with pytest.raises(ValueError, match="one"):
        await pouring
    await response.aclose()


async def test_a_piece_that_was_taken_is_not_lost_to_a_break_right_behind_it() -> None:
    _, _, connection, response = await opened()
    got: list[bytes] = []
    pouring = asyncio.ensure_future(response.pipe_to(keeping(got, more=False)))
    await asyncio.sleep(0)
    connection.data_received(b"one")
    connection.connection_lost(None)
    assert await pouring
    with pytest.raises(StreamBroken):
        await response.pipe_to(keeping(got, more=False))
    assert got == [b"one"]


async def test_pouring_ends_with_the_body_and_raises_when_it_breaks() -> None:
    for broken in (False, True):
        owner, _, connection, response = await opened()
        pouring = asyncio.ensure_future(response.pipe_to(lambda piece: True))
        await asyncio.sleep(0)
        if broken:
            connection.connection_lost(None)
            with pytest.raises(StreamBroken):
                await pouring
            continue
        connection.data_received(b"x" * 10_000_000)
        assert await pouring is False
        assert await response.pipe_to(lambda piece: True) is False
        assert owner.released == 1


async def test_silence_in_the_middle_of_a_body_has_its_own_limit_and_every_piece_starts_it_anew() -> None:
    owner, transport, connection, response = await opened(stall_timeout=2.0)
    now = connection.loop.time()
    connection.data_received(b"one")
    assert owner.watched == connection.limit == pytest.approx(now + 2, abs=0.5)
    first = connection.limit
    await asyncio.sleep(0.05)
    connection.data_received(b"two")
    assert connection.limit == first  # a later piece only notes the time
    connection.expire(first + 0.01)
    assert owner.losses == 0
    assert connection.limit >= first + 0.04
    connection.expire(connection.limit + 0.01)
    assert (owner.losses, transport.aborted) == (1, True)
    assert await anext(response) == b"onetwo"
    with pytest.raises(BackendTimeout, match="did not go on in time"):
        await anext(response)


async def test_a_backend_is_not_blamed_for_silence_while_nobody_listens_to_it() -> None:
    _, transport, connection, response = await opened(stall_timeout=2.0)
    connection.data_received(b"x" * 70_000)
    assert transport.paused
    later = connection.loop.time() + 2.5
    connection.expire(later)
    assert not transport.aborted
    assert connection.limit == later + 2
    await response.aclose()
