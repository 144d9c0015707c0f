"""Remembered bodies take bounded memory, and finding one takes bounded work."""

from __future__ import annotations

import tracemalloc

import orjson
import pytest

from gateway.dialects.clients import CONVERSATIONS
from gateway.dialects.requests.body_facts import scanned
from gateway.dialects.requests.known_bodies import (
    MOST_ALIKE,
    MOST_IDLE_S,
    MOST_LOCATED,
    KnownBodies,
    longest,
    to_locate,
)
from gateway.domain.continued import Notes
from gateway.domain.request import Controls
from tests.dialects.test_known_bodies import LINES, PATHS, POLICIES, read, result, session


def keep(bodies: KnownBodies, raw: bytes) -> None:
    """Remember `raw` as if no other body were known."""
    request = CONVERSATIONS[PATHS[0]].parse(raw, "r", Controls(), {})
    bodies.keep("key", "messages", raw, request.body, request.turns, Notes(), scanned(raw), None)


def test_few_bodies_are_located_for_one_request_and_few_of_a_key_are_compared() -> None:
    bodies, raw = KnownBodies(), session(15)
    for _ in range(MOST_ALIKE + 3):
        keep(bodies, raw)
    assert longest(bodies.alike("key", "messages", raw), raw) is None  # items are not located yet
    located = set[int]()
    while batch := to_locate(bodies.alike("key", "messages", raw)):
        assert len(batch) <= MOST_LOCATED
        bodies.locate(batch)
        located |= {id(body) for body in batch}
    assert len(located) == MOST_ALIKE
    assert (known := longest(bodies.alike("key", "messages", raw), raw)) is not None
    assert known.shared == 30


def test_an_item_with_very_much_white_space_is_not_searched_through() -> None:
    for blanks, located in ((500, True), (50_000, False)):
        bodies, raw = KnownBodies(), session(30).replace(b'"content":', b'"content":' + b" " * blanks, 1)
        for _ in range(2):
            read(PATHS[0], raw, POLICIES[0], bodies)
        assert (longest(bodies.alike("key", "messages", raw), raw) is not None) is located


@pytest.mark.parametrize(("depth", "located"), [(0, True), (1, True), (2, False), (7, False)])
def test_the_conversation_is_searched_for_in_few_arrays(depth: int, located: bool) -> None:
    nested = b'{"role" : "user", "x" : [ %b ]}' % b", ".join([b'""'] * 10_000)
    for _ in range(depth):
        nested = b'{ "messages":[%b] }' % nested
    raw = b'{"metadata" : %b, "model":"m","messages":[{"role":"user","content":"hi"}]}' % nested
    bodies = KnownBodies()
    for _ in range(2):
        result(PATHS[0], raw, POLICIES[0], bodies)
        assert result(PATHS[0], raw, POLICIES[0], bodies) == result(PATHS[0], raw, POLICIES[0])
    assert (longest(bodies.alike("key", "messages", raw), raw) is not None) is located


def test_only_what_is_parsed_counts_as_new() -> None:
    bodies = KnownBodies()
    for number in (30, 31, 32):
        read(PATHS[0], session(number), POLICIES[0], bodies)
    more, other_tail = session(33), session(33)[:-1] + b',"user":"u"}'
    for raw in (more, other_tail):
        known = longest(bodies.alike("key", "messages", raw), raw)
        assert known is not None
        assert (continued := known.parsed(raw)) is not None
        assert abs(len(continued.rest) - known.new_bytes(raw)) < 60  # the rest has a few bytes around the items


EMPTY = b",".join([b"{}"] * 19_000)
CALL = b'{"role":"assistant","content":"k","x":[%b]}'
DENSE = {
    "empty objects": CALL % EMPTY,
    "small objects": CALL % EMPTY.replace(b"{}", b'{"a":"xy"}'),
    "strings": CALL % EMPTY.replace(b"{}", b'"ab"'),
    "messages": b",".join([b'{"role":"user","content":"a"},{"role":"assistant","content":"b"}'] * 1000),
    "wide": '{{"role":"user","content":[{}]}}'.format(
        ",".join(['{"type":"text","text":"\U0001f600%s"}' % ("a" * 40_000)] * 3)
    ).encode(),
    "text": orjson.dumps({"role": "user", "content": LINES * 40}),
}


@pytest.mark.parametrize("kind", DENSE)
def test_the_memory_of_bodies_is_bounded(kind: str) -> None:
    most = 12 * 2**20
    bodies = KnownBodies(most)
    tracemalloc.start()
    try:
        for number in range(100 if kind == "text" else 16):
            keep(bodies, b'{"model":"m%d","messages":[%b]}' % (number, DENSE[kind]))
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(bodies) > 0
    assert used < most


BESIDE = {
    "keys": ",".join(f'"{at:x}":"v{at:x}"' for at in range(22_000)),
    "grown dict": ",".join(f'"{at:x}":"v{at:x}"' for at in range(10_923)),
    "numbers": ",".join(f'"{at:x}":{at}.5' for at in range(20_000)),
    "small dicts": '"a":[{}]'.format(
        ",".join(f'{{"{at}":"v","b{at}":"w","c{at}":"x","d{at}":"y","e{at}":"z","f{at}":"u"}}' for at in range(2000))
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", BESIDE)
def test_the_memory_of_fields_beside_the_conversation_is_counted(kind: str) -> None:
    """Also after the items are located, when the bytes around them are held once more."""
    bodies, raw = (
        KnownBodies(),
        f'{{"model":"m","messages":[{{"role":"user","content":"hi"}}],"x":{{{BESIDE[kind]}}}}}'.encode(),
    )
    tracemalloc.start()
    try:
        keep(bodies, bytes(bytearray(raw)))
        bodies.locate(bodies.alike("key", "messages", raw))
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    known = longest(bodies.alike("key", "messages", raw), raw)
    assert known is not None
    assert used < known.body.size


@pytest.mark.parametrize("sign", ["", "│", "\U0001f600"])
def test_the_memory_of_continued_sessions_is_at_least_half_of_the_limit_and_within_it(sign: str) -> None:
    most = 12 * 2**20
    bodies = KnownBodies(most)
    tracemalloc.start()
    try:
        for number in range(12 if sign else 24):
            for turns in (100, 101, 102):
                read(PATHS[0], session(turns, f"{number} {sign}"), POLICIES[0], bodies)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 2 < len(bodies) < 12
    assert most / 2 < used < most


def test_a_body_that_no_request_has_continued_for_long_is_forgotten() -> None:
    now = [0.0]
    bodies = KnownBodies(clock=lambda: now[0])
    for number in (30, 31, 32):
        read(PATHS[0], session(number), POLICIES[0], bodies)
    read(PATHS[0], session(30, "single"), POLICIES[0], bodies)
    now[0] = MOST_IDLE_S
    read(PATHS[0], session(30, "later"), POLICIES[0], bodies)
    assert len(bodies) == 3
    assert read(PATHS[0], session(33), POLICIES[0], bodies)[1] == 64
    now[0] = 2 * MOST_IDLE_S
    read(PATHS[0], session(30, "last"), POLICIES[0], bodies)
    assert len(bodies) == 3  # the one that was continued, and the later ones
    assert read(PATHS[0], session(34), POLICIES[0], bodies)[1] == 66
