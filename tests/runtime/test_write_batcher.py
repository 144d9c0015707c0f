"""Writes of one turn go out together, in order, bounded, and none of them holds up another."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop

from gateway.runtime.write_batcher import MOST_BYTES, WriteBatcher, send_at_once


class Wire(asyncio.WriteTransport):
    """Notes under its name what is written to it."""

    def __init__(self, name: str, log: list[tuple[str, bytes]], *, broken: bool = False) -> None:
        super().__init__()
        self.name, self.log, self.broken = name, log, broken
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.broken:
            raise RuntimeError("no such descriptor")
        self.log.append((self.name, bytes(data)))

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True


async def test_what_a_turn_says_is_sent_before_what_comes_after_it_begins() -> None:
    loop, outgoing, log = asyncio.get_running_loop(), WriteBatcher(), list[tuple[str, bytes]]()
    one, two = Wire("one", log), Wire("two", log)
    outgoing.add(one, b"a", loop)
    loop.call_soon(log.append, ("later", b""))
    outgoing.add(two, b"b", loop)
    outgoing.add(one, b"c", loop)
    assert log == []
    await asyncio.sleep(0)
    assert log == [("one", b"a"), ("two", b"b"), ("one", b"c"), ("later", b"")]
    outgoing.add(two, b"d", loop)
    await asyncio.sleep(0)
    assert log[4:] == [("two", b"d")]


async def test_flushing_sends_at_once_and_nothing_twice() -> None:
    loop, outgoing, log = asyncio.get_running_loop(), WriteBatcher(), list[tuple[str, bytes]]()
    wire = Wire("one", log)
    outgoing.add(wire, b"a", loop)
    outgoing.flush()
    outgoing.add(wire, b"b", loop)
    assert log == [("one", b"a")]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert log == [("one", b"a"), ("one", b"b")]


async def test_much_is_not_kept_for_the_end_of_the_turn() -> None:
    loop, outgoing, log = asyncio.get_running_loop(), WriteBatcher(), list[tuple[str, bytes]]()
    wire = Wire("one", log)
    outgoing.add(wire, bytes(MOST_BYTES), loop)
    assert log == []
    outgoing.add(wire, b"a", loop)
    assert [len(data) for _, data in log] == [MOST_BYTES, 1]


async def test_one_that_is_closed_or_broken_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    loop, outgoing, log = asyncio.get_running_loop(), WriteBatcher(), list[tuple[str, bytes]]()
    closed, broken, sound = Wire("closed", log), Wire("broken", log, broken=True), Wire("sound", log)
    for wire in (closed, broken, sound):
        outgoing.add(wire, b"a", loop)
    closed.closing = True
    await asyncio.sleep(0)
    assert log == [("sound", b"a")]
    assert broken.closing
    assert "cannot be written to" in caplog.text


async def test_one_flush_ends_a_turn_with_or_without_data() -> None:
    loop, outgoing, log = asyncio.get_running_loop(), WriteBatcher(), list[tuple[str, bytes]]()
    outgoing.before = lambda: log.append(("before", b""))
    outgoing.flush_soon(loop)
    outgoing.add(Wire("one", log), b"a", loop)
    outgoing.flush_soon(loop)
    await asyncio.sleep(0)
    assert log == [("before", b""), ("one", b"a")]
    outgoing.flush_soon(loop)
    await asyncio.sleep(0)
    assert log[2:] == [("before", b"")]


def test_what_is_written_is_sent_before_other_callbacks_run() -> None:
    async def sent() -> bytes:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
        send_at_once(transport)
        transport.write(b"answer")
        with theirs:
            found = theirs.recv(100)
        transport.abort()
        return found

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(sent()) == b"answer"
