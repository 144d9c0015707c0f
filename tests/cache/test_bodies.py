from __future__ import annotations

from gateway.cache.bodies import Bodies, Stored
from gateway.domain.usage import Usage
from gateway.state.connection import State


def stored(text: bytes = b"{}") -> Stored:
    return Stored(text, Usage(3, output_tokens=4), None, "small", "tiny")


async def test_an_answer_comes_back_with_its_figures(state: State) -> None:
    bodies = Bodies(state)
    await bodies.put(b"a", stored(b'{"text":"one\\ntwo"}\n'), 60)
    assert await bodies.get(b"a", recall=False) == stored(b'{"text":"one\\ntwo"}\n')
    await bodies.delete([b"a"])
    assert await bodies.get(b"a", recall=False) is None


async def test_what_is_at_hand_counts_only_while_the_index_is_up_to_date(state: State) -> None:
    bodies = Bodies(state)
    await bodies.put(b"a", stored(), 60)
    await bodies.get(b"a", recall=True)
    await bodies.delete([b"a"])
    assert await bodies.get(b"a", recall=True) == stored()
    assert await bodies.get(b"a", recall=False) is None
    bodies.forget(b"a")
    assert await bodies.get(b"a", recall=True) is None


async def test_little_is_kept_at_hand(state: State) -> None:
    bodies = Bodies(state, at_hand_bytes=10)
    for name in (b"a", b"b"):
        await bodies.put(name, stored(b"x" * 8), 60)
        await bodies.get(name, recall=True)
    await bodies.delete([b"a", b"b"])
    assert await bodies.get(b"a", recall=True) is None
    assert await bodies.get(b"b", recall=True) is not None
