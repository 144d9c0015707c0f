from __future__ import annotations

from gateway.cache.entry import Entry
from gateway.cache.store.bodies import OVERHEAD_BYTES, Bodies, Stored
from gateway.domain.money.usage import Usage
from gateway.state.redis.connection import State


def stored(text: bytes = b"{}") -> Stored:
    return Stored(text, Usage(3, 1, 2, 4, 5, 6, 7, estimated=True), None, "small", "tiny")


def entry(digest: bytes, place: str = "p") -> Entry:
    return Entry(digest, "a", (), 0.0, 1.0, 2, place=place)


async def test_answers_come_back_with_their_figures(state: State) -> None:
    bodies = Bodies(state)
    await bodies.put("p", [(b"a", stored(b'{"text":"one\\ntwo"}\n')), (b"b", stored())], 60)
    assert await bodies.get(entry(b"a"), recall=False) == stored(b'{"text":"one\\ntwo"}\n')
    await bodies.delete([entry(b"a"), entry(b"elsewhere", "q")])
    assert await bodies.get(entry(b"a"), recall=False) is None
    assert await bodies.get(entry(b"b"), recall=False) == stored()
    assert await bodies.get(entry(b"b", "q"), recall=False) is None


async def test_answers_of_one_place_end_together(state: State) -> None:
    bodies = Bodies(state)
    await bodies.put("p", [(b"a", stored()), (b"b", stored())], 60)
    (key,) = await state.call("KEYS", state.key("cache", "*"))
    assert 59_000 < await state.call("PTTL", key) <= 60_000


async def test_what_is_at_hand_counts_only_while_the_index_is_up_to_date(state: State) -> None:
    bodies = Bodies(state)
    await bodies.put("p", [(b"a", stored())], 60)
    await bodies.get(entry(b"a"), recall=True)
    await bodies.delete([entry(b"a")])
    assert await bodies.get(entry(b"a"), recall=True) == stored()
    assert await bodies.get(entry(b"a"), recall=False) is None
    bodies.forget(b"a")
    assert await bodies.get(entry(b"a"), recall=True) is None


async def test_little_is_kept_at_hand(state: State) -> None:
    bodies = Bodies(state, memory_bytes=10 + 2 * OVERHEAD_BYTES)
    for name in (b"a", b"b"):
        bodies.keep(name, stored(b"x" * 8))
    assert await bodies.get(entry(b"a"), recall=True) is None
    assert await bodies.get(entry(b"b"), recall=True) is not None
