from __future__ import annotations

import pytest

from gateway.context.count import Counter
from gateway.context.shorten import LEAST_TOKENS, level, shorten


@pytest.mark.parametrize(
    ("sizes", "room", "cut_to"),
    [
        ([1000, 1000], 2000, 1000),
        ([1000, 1000], 1000, 500),
        ([100, 5000], 600, 500),
        ([200, 300, 4000], 900, 400),
        ([5000], LEAST_TOKENS, LEAST_TOKENS),
        ([5000], LEAST_TOKENS - 1, None),
        ([20, 5000], LEAST_TOKENS + 19, None),
    ],
)
def test_only_the_longest_are_cut_and_all_to_the_same_size(sizes: list[int], room: int, cut_to: int | None) -> None:
    assert level(sizes, room) == cut_to


@pytest.mark.parametrize("text", ["word " * 4000, "漢字" * 3000, "x" * 9000, "ab\n" * 50 + "1.5, 2.25;" * 2000])
@pytest.mark.parametrize("wanted", [LEAST_TOKENS, 400])
def test_a_shortened_text_keeps_both_ends_and_says_what_is_missing(text: str, wanted: int, counter: Counter) -> None:
    cut = shorten(text, counter.count(text), wanted, counter.count)
    assert counter.count(cut) <= wanted
    assert "left out here by the gateway" in cut
    assert cut[:10] == text[:10]
    assert cut[-8:] == text[-8:]
