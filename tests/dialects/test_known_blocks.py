"""A remembered block gives the facts that a scan of the whole body gives, and never another team's or other bytes'."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects import json_splice
from gateway.dialects.requests.known_blocks import BLOCK_BYTES, KnownBlocks
from gateway.domain.body_scan import MODEL, WORDS, BodyScan, has_escaped_letter
from gateway.domain.request import CompletionRequest


def plain_scan(raw: bytes) -> BodyScan:
    """The same facts, found without blocks."""
    words = frozenset(word for word in WORDS if word in raw)
    items = raw.count(b"{") + raw.count(b"[")
    return BodyScan(raw, items, raw.count(b":"), raw.count(b","), words, has_escaped_letter(raw), raw.count(MODEL))


def session(turns: int, last: str = "") -> bytes:
    content = 'def f(x): return {"a": [1, 2, x]}\n' * 120
    messages = [{"role": "user", "content": f"{number} {content}"} for number in range(turns)]
    return orjson.dumps({"model": "m", "messages": [*messages, {"role": "user", "content": last}]})


def test_each_request_of_a_session_has_the_facts_of_its_whole_body() -> None:
    known = KnownBlocks()
    for turns in range(12, 40, 3):
        for last in ("", "file_id", '\\u0066ile_id "mcp"', "cache_control"):
            raw = session(turns, last)
            assert known.scan("team", raw) == plain_scan(raw)


@given(st.sampled_from([*sorted(WORDS), MODEL, b"\\u0041"]), st.integers(-30, 30), st.integers(1, 3))
def test_a_word_across_a_border_of_blocks_is_found(word: bytes, shift: int, blocks: int) -> None:
    at = blocks * BLOCK_BYTES + shift
    raw = b"x" * at + word + b"y" * (4 * BLOCK_BYTES - at)
    assert KnownBlocks().scan("team", raw) == plain_scan(raw)


def test_a_changed_early_byte_is_seen() -> None:
    known, raw = KnownBlocks(), bytearray(session(30))
    known.scan("team", bytes(raw))
    raw[100:107] = b"file_id"
    assert b"file_id" in known.scan("team", bytes(raw)).words


def test_blocks_are_evicted_and_belong_to_one_team() -> None:
    few, many, raw = KnownBlocks(most_bytes=4 * BLOCK_BYTES), KnownBlocks(), session(40)
    blocks = -(-len(raw) // BLOCK_BYTES)
    for number, team in enumerate(("one", "one", "two")):
        assert few.scan(team, raw) == many.scan(team, raw) == plain_scan(raw)
        assert (len(few), len(many)) == (4, blocks * (1 + (number == 2)))


@pytest.mark.parametrize("word", sorted(WORDS))
def test_a_scan_is_not_used_for_other_bytes(word: bytes) -> None:
    raw = session(30)
    request = CompletionRequest("r", "openai_chat", raw, {}, "m", [], False, None, None, frozenset())
    request.scan = KnownBlocks().scan("team", raw)
    assert not request.contains(word)
    request.raw = raw + word
    assert request.contains(word)
    assert request.known_scan is None


@pytest.mark.parametrize(
    ("more", "fast"),
    [
        ({}, True),
        ({"content": 'the word "model" in a text'}, True),
        ({"metadata": {"model": "x"}}, False),
        ({"kind": "model"}, False),
    ],
)
def test_the_model_is_replaced_where_it_stands_or_wherever_the_scan_cannot_tell(
    more: dict[str, object], fast: bool
) -> None:
    body = {**orjson.loads(session(30)), **more}
    for raw in (orjson.dumps(body), orjson.dumps(body).replace(b'"model":', b'"model" : ', 1)):
        scan = KnownBlocks().scan("team", raw)
        assert (scan.models == 1) is fast
        changes = {"model": b'"another"'}
        expected = json_splice.splice(raw, body, changes)
        assert json_splice.splice(raw, body, changes, scan) == expected
        assert orjson.loads(expected)["model"] == "another"


def test_an_escaped_key_is_not_taken_for_another() -> None:
    raw = session(30).replace(b'"model":"m"', b'"\\u006dodel":"m","kind":"model"')
    body, scan = orjson.loads(raw), KnownBlocks().scan("team", raw)
    assert orjson.loads(json_splice.splice(raw, body, {"model": b'"another"'}, scan)) == {**body, "model": "another"}
