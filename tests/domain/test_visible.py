from __future__ import annotations

import unicodedata

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.text.visible import visible, visible_json

OBEYED = st.characters(categories=("Cc", "Zl", "Zp")) | st.sampled_from("\u202e\u2066\u200b\ufeff\u061c")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u202eb", "a\\u202eb"),
        ("a\U000e0041", "a\\U000e0041"),
        ("one\ntwo\tthree\r", "one\\ntwo\\tthree\\r"),
        ("[link=http://x]ñ 🙂 你好", "[link=http://x]ñ 🙂 你好"),
    ],
)
def test_what_a_terminal_obeys_is_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.lists(OBEYED).map("".join))
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    assert not [char for char in visible(text) if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp", "Cs")]
    assert visible(visible(text)) == visible(text)


@given(st.text(st.characters(exclude_categories=("Cs",)) | OBEYED))
def test_json_says_the_same_afterwards(text: str) -> None:
    assert orjson.loads(visible_json(orjson.dumps({"name": text}).decode())) == {"name": text}
