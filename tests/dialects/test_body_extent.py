"""Objects, arrays, keys and values are counted in a body's bytes as a parser would count them."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.requests import body_extent
from gateway.dialects.requests.body_extent import KEYS_PER_ITEM, VALUES_PER_ITEM, check_extent
from gateway.errors import BodyTooLarge

JSON = st.recursive(
    st.none() | st.integers(-9, 9) | st.text('a"\\[{,:}]\n\u00e1', max_size=9),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text('"\\:[', max_size=3), inner, max_size=5),
    max_leaves=40,
)


def items(value: object) -> int:
    """Objects and arrays, as a parser sees them."""
    if isinstance(value, dict):
        return 1 + sum(map(items, value.values()))
    return 1 + sum(map(items, value)) if isinstance(value, list) else 0


@given(JSON, st.integers(1, 30))
def test_slices_of_any_size_count_what_a_parser_counts(value: object, size: int) -> None:
    body = orjson.dumps([[], value])
    most = items(orjson.loads(body))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(body_extent, "KEYS_PER_ITEM", 1000)
        patch.setattr(body_extent, "VALUES_PER_ITEM", 1000)
        check_extent(body, most, size)
        with pytest.raises(BodyTooLarge, match=f"more than {most - 1} objects and arrays"):
            check_extent(body, most - 1, size)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"[" + b",".join([b"1"] * (10 * VALUES_PER_ITEM + 2)) + b"]", "200 values"),
        (orjson.dumps({str(key): 1 for key in range(10 * KEYS_PER_ITEM + 1)}), "50 keys"),
        (b"[" * 21, "10 objects and arrays"),
    ],
)
def test_a_refusal_says_what_there_is_too_much_of_and_who_decides(body: bytes, what: str) -> None:
    with pytest.raises(BodyTooLarge, match=rf"more than {what}, .*requests\.max_items \(10\)"):
        check_extent(body, 10)
