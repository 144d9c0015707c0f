"""One connection: replies never meet a stranger, whoever is cancelled, late or gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.errors import StateUnavailable
from gateway.state.redis.connection import State
from tests.support.waiting import until


async def connections(state: State) -> int:
    listed: bytes = await state.call("CLIENT", "LIST", "TYPE", "normal")
    return listed.count(b"\n")


async def test_a_cancelled_caller_of_a_line_of_its_own_ends_the_connection(own: State) -> None:
    before = await connections(own)
    transport = await own.dial()
    reading = asyncio.get_running_loop().create_task(transport.exchange([("BLPOP", own.key("list"), 0)], 10.0))
    await until(lambda: not reading.done())
    while b"cmd=blpop" not in await own.call("CLIENT", "LIST", "TYPE", "normal"):
        await asyncio.sleep(0.01)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    with pytest.raises(StateUnavailable, match="closed"):
        await transport.exchange([("PING",)], 1.0)
    while await connections(own) > before:
        await asyncio.sleep(0.01)
    again = await own.dial()
    await own.call("RPUSH", own.key("list"), "stale")
    assert await again.exchange([("ECHO", "mine")], 1.0) == [b"mine"]
    await again.aclose()


async def test_a_late_reply_ends_a_line(own: State) -> None:
    transport = await own.dial()
    with pytest.raises(StateUnavailable, match="no reply in time"):
        await transport.exchange([("BLPOP", own.key("list"), 0)], 0.05)
    with pytest.raises(StateUnavailable, match="closed"):
        await transport.exchange([("PING",)], 1.0)


async def test_a_refused_command_leaves_its_neighbours_and_the_line_whole(own: State) -> None:
    transport = await own.dial()
    first, refused, last = await transport.exchange([("ECHO", "1"), ("NONSENSE",), ("ECHO", "2")], 1.0)
    assert (first, last) == (b"1", b"2")
    assert str(refused).startswith("ERR unknown command")
    assert await transport.exchange([("PING",)], 1.0) == [b"PONG"]
    await transport.aclose()
    await transport.aclose()


async def test_a_caller_cancelled_in_the_middle_of_its_own_pipeline_disturbs_nobody(own: State) -> None:
    loop = asyncio.get_running_loop()
    big = [("ECHO", b"x" * 200_000)] * 20
    cancelled = loop.create_task(own.pipeline(big))
    follower = loop.create_task(own.call("ECHO", "mine"))
    await asyncio.sleep(0.002)
    cancelled.cancel()
    assert await follower == b"mine"
    assert own.stats()["connects"] == 1


async def test_a_server_that_hangs_up_is_noticed_at_once_even_by_nobody(own: State) -> None:
    transport = await own.dial()
    await transport.exchange([("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")], 1.0)
    await until(lambda: own.stats()["connects"] == 2)
    assert await own.call("PING") == b"PONG"
    await transport.aclose()


async def test_a_server_that_answers_what_nobody_asked_counts_as_down(directory: Path) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"$2\r\nep\r\n+what\r\n")
        await reader.read()
        writer.close()

    stranger = await asyncio.start_unix_server(babble, directory / "babble.sock")
    state = State(f"unix://{directory}/babble.sock")
    await state.open()
    await until(lambda: not state.healthy)
    with pytest.raises(StateUnavailable):
        await state.call("PING")
    await state.aclose()
    stranger.close()
    await asyncio.sleep(0.01)  # its end of the connection closes too


async def test_a_word_that_cannot_be_sent_is_its_callers_mistake_alone(own: State) -> None:
    with pytest.raises(TypeError):
        await own.call("SET", own.key("a"), None)  # type: ignore[arg-type]
    assert await own.call("PING") == b"PONG"
