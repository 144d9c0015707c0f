"""Values that arrive together end together."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import StateUnavailable
from gateway.state.redis import bundle
from gateway.state.redis.bundle import MOST_FIELDS
from gateway.state.redis.connection import State
from gateway.state.redis.embedded import EmbeddedServer


async def test_values_come_back_by_field_and_end_together(own: State) -> None:
    key = own.key("things", "1")
    await bundle.put(own, key, [("text", b"one"), (b"\xff\x00", b"\x00two\r\n")], 60)
    assert await bundle.get(own, key, "text") == b"one"
    assert await bundle.get(own, key, b"\xff\x00") == b"\x00two\r\n"
    assert await bundle.get(own, key, "other") is None
    assert await bundle.get(own, own.key("things", "2"), "text") is None
    assert 59_000 < await own.call("PTTL", key) <= 60_000


async def test_more_may_be_put_and_its_time_begins_anew(own: State) -> None:
    key = own.key("things", "1")
    await bundle.put(own, key, [("a", b"1"), ("b", b"1")], 1.0)
    await bundle.put(own, key, [("b", b"2"), ("c", b"2")], 60)
    await asyncio.sleep(1.05)
    assert [await bundle.get(own, key, field) for field in "abc"] == [b"1", b"2", b"2"]


async def test_nothing_is_not_put(own: State) -> None:
    await bundle.put(own, own.key("things", "1"), [], 60)
    assert await own.call("EXISTS", own.key("things", "1")) == 0


async def test_as_many_as_promised_go_in_one_call(own: State) -> None:
    key = own.key("things", "1")
    await bundle.put(own, key, [(f"f{number}", b"%d" % number) for number in range(MOST_FIELDS)], 60)
    assert await own.call("HLEN", key) == MOST_FIELDS


async def test_a_server_that_is_away_says_so(server: EmbeddedServer, own: State) -> None:
    await asyncio.to_thread(server.kill)
    for work in (bundle.put(own, "k", [("a", b"1")], 60), bundle.get(own, "k", "a")):
        with pytest.raises(StateUnavailable):
            await work
