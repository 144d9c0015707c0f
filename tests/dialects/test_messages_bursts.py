"""Deltas that arrive together are counted and stored as if each had arrived by itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.anthropic_messages import relay
from gateway.dialects.anthropic_messages.relay import MessagesRelay
from tests.dialects.samples import named as event
from tests.dialects.samples import read, steady
from tests.dialects.test_messages_to_messages import END, START, STOP

KINDS = {"text": "text_delta", "thinking": "thinking_delta", "partial_json": "input_json_delta"}
TEXT = st.text(st.sampled_from('ab"\\\n\t/ñ🌈,:{}') | st.characters(exclude_categories=["Cs"]), max_size=5)
RUNS = st.tuples(st.sampled_from(sorted(KINDS)), st.lists(TEXT | st.sampled_from(["\\", '"}}', "}}\n\nevent: "])))


def deltas(index: int, field: str, texts: list[str]) -> list[bytes]:
    about = {"type": "content_block_delta", "index": index}
    return [event({**about, "delta": {"type": KINDS[field], field: text}}) for text in texts]


def block(index: int, field: str, inner: list[bytes]) -> list[bytes]:
    made: dict[str, Any] = {
        "text": {"type": "text", "text": ""},
        "thinking": {"type": "thinking", "thinking": "", "signature": ""},
        "partial_json": {"type": "tool_use", "id": "t", "name": "look", "input": {}},
    }[field]
    begun = event({"type": "content_block_start", "index": index, "content_block": made})
    return [begun, *inner, event({"type": "content_block_stop", "index": index})]


def outcome(pieces: list[bytes]) -> tuple[Any, ...]:
    reader = MessagesRelay()
    relayed = read(reader, pieces) + reader.ending
    said = reader.delivered_text(), reader.delivered_characters()
    return relayed, reader.chunks, reader.silent, reader.finish, reader.usage, reader.completion(), said


@steady
@given(st.lists(RUNS, max_size=4), st.booleans())
def test_any_deltas_that_arrive_together(runs: list[tuple[str, list[str]]], pings: bool) -> None:
    events = [START]
    for index, (field, texts) in enumerate(runs):
        inner = deltas(index, field, texts)
        if pings:
            inner[1:1] = [event({"type": "ping"})]
        events += block(index, field, inner)
    events += [END, STOP]
    assert outcome([b"".join(events)]) == outcome(events)


@pytest.mark.parametrize("odd", [b'a"b', b"a\x01b", b"a\\", b"a\\\x01"])
def test_a_text_that_is_no_json_string_breaks_the_stream_as_if_it_came_alone(odd: bytes) -> None:
    inner = deltas(0, "text", ["one", "two", "three", "four"])
    inner[2] = inner[2].replace(b"three", odd)
    events = [START, *block(0, "text", inner), END, STOP]

    def failure(pieces: list[bytes]) -> tuple[str, int, str]:
        reader = MessagesRelay()
        with pytest.raises(Exception) as caught:  # noqa: PT011 - any failure, but the same one
            read(reader, pieces)
        return repr(caught.value), reader.chunks, reader.delivered_text()

    assert failure([b"".join(events)]) == failure(events)


def test_many_deltas_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    matched = []

    def match(data: bytes, at: int) -> Any:
        matched.append(at)
        return searched(data, at)

    searched = relay._DELTA
    monkeypatch.setattr(relay, "_DELTA", match)
    texts = deltas(0, "text", [f"word {number} " for number in range(100)])
    call = deltas(1, "partial_json", ['{"a', '":', "1}"])
    events = [START, *block(0, "text", texts), *block(1, "partial_json", call), END, STOP]
    assert outcome([b"".join(events)])[1] == 100 + 3 + 2
    assert len(matched) < 20
