"""Splicing changes the named values and not one other byte."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.json_splice import elements, find, members, splice, string_end, value_end
from tests.dialects.samples import steady

KEYS = st.sampled_from(["model", "messages", "model_", '"model"', "a\\", "é", ""]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=8
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)
OBJECTS = st.dictionaries(KEYS, JSON, min_size=1, max_size=6)


def spaced(value: Any) -> bytes:
    """The same JSON as another library might write it: spaces, line breaks, ASCII only."""
    if isinstance(value, dict):
        inner = " ,\n".join(f"{escaped(key)} :\t{spaced(item).decode()}" for key, item in value.items())
        return f" {{ {inner} }} ".encode()
    if isinstance(value, list):
        return ("[ " + " , ".join(spaced(item).decode() for item in value) + "\r\n]").encode()
    if isinstance(value, str):
        return escaped(value).encode()
    return orjson.dumps(value)


def escaped(text: str) -> str:
    units = text.encode("utf-16-be")
    return '"' + "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2)) + '"'


@steady
@given(OBJECTS, st.dictionaries(st.sampled_from(["model", "messages", "stream_options"]), JSON, min_size=1))
def test_splicing_sets_the_named_keys_and_leaves_the_others(body: dict[str, Any], changes: dict[str, Any]) -> None:
    for raw in (orjson.dumps(body), orjson.dumps(body, option=orjson.OPT_INDENT_2), spaced(body)):
        spliced = splice(raw, body, {key: orjson.dumps(value) for key, value in changes.items()})
        assert orjson.loads(spliced) == {**body, **changes}


@steady
@given(OBJECTS)
def test_members_and_elements_cover_every_value_in_its_own_bytes(body: dict[str, Any]) -> None:
    for raw in (orjson.dumps(body), spaced(body)):
        assert {key: orjson.loads(raw[a:b]) for key, (a, b) in members(raw)} == body
        for _, (start, end) in members(raw):
            assert value_end(raw, start) == end
            if raw[start : start + 1] == b"[":
                assert [orjson.loads(raw[a:b]) for a, b in elements(raw, start)] == orjson.loads(raw[start:end])


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"model":"a","temperature":1.0,"x":1e-7}', b'{"model":"b","temperature":1.0,"x":1e-7}'),
        (b'{ "seed" : 12345678901234567890 ,"model"\n:\t"a" }', b'{ "seed" : 12345678901234567890 ,"model"\n:\t"b" }'),
        (b'{"x":"\\"model\\":\\"a\\"","model":"a"}', b'{"x":"\\"model\\":\\"a\\"","model":"b"}'),
        (b'{"tools":[{"model":"a"}],"model":"a"}', b'{"tools":[{"model":"a"}],"model":"b"}'),
        (b'{"x":"model","model":"a"}', b'{"x":"model","model":"b"}'),
        (b'{"x":"ends with \\\\","model":"a"}', b'{"x":"ends with \\\\","model":"b"}'),
        (b'{"x":"\\u00e9","model":"a\\"}"}', b'{"x":"\\u00e9","model":"b"}'),
    ],
)
def test_only_the_value_changes_however_the_json_is_written(raw: bytes, expected: bytes) -> None:
    assert splice(raw, orjson.loads(raw), {"model": b'"b"'}) == expected


def test_every_duplicate_is_replaced_even_one_spelled_with_escapes() -> None:
    raw = b'{"model":"a","mod\\u0065l":"a","model" : "c"}'
    assert splice(raw, orjson.loads(raw), {"model": b'"b"'}) == b'{"model":"b","mod\\u0065l":"b","model" : "b"}'


def test_every_plain_duplicate_is_replaced_in_a_body_without_spaces() -> None:
    raw = b'{"model":"a","messages":[],"model":"a"}'
    assert splice(raw, orjson.loads(raw), {"model": b'"b"'}) == b'{"model":"b","messages":[],"model":"b"}'


def test_a_hidden_duplicate_after_a_plain_one_is_found() -> None:
    raw = b'{"model":"dear","messages":[],"\\u006dodel":"dear"}'
    assert len(find(raw, "model")) == 2


def test_absent_keys_are_added_first_and_nothing_else_moves() -> None:
    raw = b'\n {"model":"a","n":null}'
    added = splice(raw, orjson.loads(raw), {"logprobs": b"true", "model": b'"b"'})
    assert added == b'\n {"logprobs":true,"model":"b","n":null}'


def test_a_string_full_of_escapes_ends_where_it_ends() -> None:
    raw = b'"' + b'\\"' * 50_000 + b'\\\\" tail'
    assert string_end(raw, 0) == len(raw) - len(b" tail")
