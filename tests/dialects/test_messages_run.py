"""Events that differ in nothing but their text are said as chunks without being parsed."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.translate.chat_to_messages.run import DeltaRun
from tests.dialects.samples import chunk, steady


def event(words: str, index: int = 0, **more: Any) -> bytes:
    delta = {"type": "text_delta", "text": words, **more}
    return b"event: content_block_delta\ndata: %s\n\n" % orjson.dumps(
        {"type": "content_block_delta", "index": index, "delta": delta}
    )


def run(first: bytes, words: str = "a", kept: list[bytes] | None = None) -> DeltaRun | None:
    return DeltaRun.after(first, "text", chunk({"content": words}), "content", words, kept)


@steady
@given(st.text(min_size=1), st.text(min_size=1))
def test_any_text_is_said_as_if_it_had_been_parsed(first: str, then: str) -> None:
    kept: list[bytes] = []
    begun = run(event(first), first, kept)
    assert begun
    said = begun.chunk_for(event(then))
    assert said
    assert orjson.loads(said[6:]) == orjson.loads(chunk({"content": then})[6:])
    assert orjson.loads(b'"%b"' % kept[0]) == then


@pytest.mark.parametrize("blanks", [0, 1, 15])
def test_padding_is_no_part_of_what_is_said(blanks: int) -> None:
    begun = run(event("a")[:-3] + b"   }\n\n")
    assert begun
    assert begun.chunk_for(event("b")[:-3] + b" " * blanks + b"}\n\n") == chunk({"content": "b"})


def test_keys_may_stand_in_any_order() -> None:
    before, after = b'data: {"delta":{"text":"', b'","type":"text_delta"},"index":0}\n\n'
    begun = run(before + b"a" + after)
    assert begun
    assert begun.chunk_for(before + b'\\"b' + after) == chunk({"content": '"b'})
    assert begun.chunk_for(before + b"b" + after[:-3] + b" }\n\n") is None


@pytest.mark.parametrize(
    "other",
    [
        event("b", index=1),
        event("b", citations=None),
        event(""),
        event("b")[:-1],
        event("b") + event("c"),
        event("b").replace(b'"b"', b'"b'),
        event("b").replace(b'"b"', b'"b\\x"'),
        event("b").replace(b'"b"', b'"\xff"'),
        event("b").replace(b'"b"', b'"\\ud800"'),
        event("b").replace(b'"b"', b'"b\nc"'),
        event("b").replace(b'"b"', b'"b","c":"d"'),
        event("b")[:-4] + b"},}\n\n",
        b"",
        b"event: ping\ndata: {}\n\n",
    ],
)
def test_anything_else_is_left_to_be_parsed(other: bytes) -> None:
    begun = run(event("a"))
    assert begun
    assert begun.chunk_for(other) is None


@pytest.mark.parametrize("first", [event("b"), event("a").replace(b'"text":', b'"text" :'), event("a", text="c")])
def test_an_event_that_says_something_else_begins_no_run(first: bytes) -> None:
    assert run(first) is None
