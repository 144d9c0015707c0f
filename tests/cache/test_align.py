from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.cache.verifier.align import align
from gateway.cache.verifier.lexicon import load_words
from gateway.cache.verifier.text import Reader, Reading

READER = Reader(load_words())


def read(text: str) -> Reading:
    return READER.read(text)


def test_gaps_hold_what_only_one_side_has_and_say_where_they_stand() -> None:
    aligned = align(read("please cook red rice"), read("cook brown rice slowly"))
    assert aligned is not None
    gaps, pairs = aligned
    assert [([t.form for t in gap.stored], [t.form for t in gap.asked], gap.first, gap.last) for gap in gaps] == [
        (["please"], [], True, False),
        (["red"], ["brown"], False, False),
        ([], ["slowly"], False, True),
    ]
    assert pairs == [(1, 0), (3, 2)]


words = st.lists(st.sampled_from("abcd"), max_size=12).map(" ".join)


@given(words, words)
def test_pairs_and_gaps_together_are_both_texts(stored: str, asked: str) -> None:
    left, right = read(stored), read(asked)
    aligned = align(left, right)
    assert aligned is not None
    gaps, pairs = aligned
    assert all(left.forms[i] == right.forms[j] for i, j in pairs)
    assert pairs == sorted(pairs)
    assert len(pairs) + sum(len(gap.stored) for gap in gaps) == len(left.tokens)
    assert len(pairs) + sum(len(gap.asked) for gap in gaps) == len(right.tokens)


def test_texts_that_differ_over_a_long_stretch_are_not_compared() -> None:
    assert align(read("a " * 80), read("b " * 80)) is None
    assert align(read("a " * 200), read("a " * 200 + "b")) is not None
