"""What outlives a request is cut; where it tells things apart, those stay apart."""

from __future__ import annotations

from gateway.domain.end_user import MOST_CHARACTERS, named
from gateway.domain.text.truncation import cut, cut_apart


def test_a_short_text_stays_as_it_is() -> None:
    assert cut("hello", 5) == cut_apart("hello", 5) == "hello"


def test_a_long_text_is_cut_to_the_length() -> None:
    assert cut("hello there", 6) == "hello…"
    assert len(cut_apart("h" * 1000, 100)) == 100


def test_end_users_whose_long_names_differ_only_at_the_end_are_told_apart() -> None:
    names = [named({"user": "a" * 5000 + end}) for end in ("1", "2", "1")]
    assert names[0] == names[2] != names[1]
    assert max(map(len, names)) <= MOST_CHARACTERS
