"""The facts about the bytes of a body are those of a plain search, however the words are mixed with other text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.requests.body_facts import Facts
from gateway.domain.body_scan import ESCAPED_LETTER, MODEL, WORDS

PIECES = [
    *sorted(WORDS),
    *sorted(word[:-1] for word in WORDS),
    *sorted(word[1:] for word in WORDS),
    *(MODEL, MODEL[1:], MODEL[:-1], b"_", b"__", b'"', b"{", b"[", b":", b",", b"\\u0041", b"\\u00e9", b"\\n", b"\\"),
    *(b"x" * 40, b"_x" * 30, " ñ€😀".encode()),
]


@given(st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join))
def test_facts_are_those_of_a_plain_search(part: bytes) -> None:
    facts = Facts.of(part)
    assert facts.items == part.count(b"{") + part.count(b"[")
    assert (facts.keys, facts.values) == (part.count(b":"), part.count(b","))
    assert facts.words == {word for word in WORDS if word in part}
    assert facts.models == part.count(MODEL)
    assert facts.escaped_letter == (ESCAPED_LETTER.search(part) is not None)
