"""Streams whose events are not valid, misplaced or without end: their text is counted, and they are not stored."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from gateway.dialects.anthropic_messages.relay import MessagesRelay
from gateway.dialects.openai_chat.assembly import Assembly
from gateway.dialects.openai_chat.stream import ChatStream
from gateway.dialects.openai_responses.relay import ResponsesRelay
from gateway.dialects.registry import wire
from gateway.dialects.streams import sse
from gateway.domain.request import DialectName
from gateway.errors import BackendGarbage
from tests.dialects.samples import DONE, STOP, chunk, event, named, read, text
from tests.dialects.test_bursts import Sender, request

WORDS = [" word of text"] * 200
INVALID = [b"wo\x01rd", rb"wo\qrd", b"wo\xffrd", rb"wo\ud800rd"]
"""Texts that JSON does not allow. Lenient clients read them."""


def chat_reader() -> ChatStream:
    return ChatStream(wants_usage=True)


READERS: dict[str, Callable[[], Any]] = {
    "openai_chat": chat_reader,
    "anthropic_messages": MessagesRelay,
    "openai_responses": ResponsesRelay,
}


def stream_of(dialect: str) -> list[bytes]:
    return list(getattr(Sender(alike=True, ascii_only=False), dialect)([("text", WORDS)]))


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("odd", INVALID)
@pytest.mark.parametrize("dialect", READERS)
def test_a_text_that_is_not_valid_json_does_not_hide_the_texts_beside_it(
    dialect: str, odd: bytes, together: bool
) -> None:
    events, reader = stream_of(dialect), READERS[dialect]()
    events[50] = events[50].replace(b"word", odd)
    pieces = [b"".join(events)] if together else events
    if dialect == "anthropic_messages" and b"\x01" in odd:  # such a text is not passed on
        with pytest.raises(BackendGarbage):
            read(reader, pieces)
        assert reader.delivered_characters() == len("".join(WORDS[:48]))
        return
    read(reader, pieces)
    said = len("".join(WORDS))
    assert said - 10 <= reader.delivered_characters() <= said + 10
    assert reader.delivered_characters() <= reader.most_characters
    assert dialect == "openai_responses" or reader.completion() is None  # the final event has the whole response


@pytest.mark.parametrize("odd", INVALID)
def test_invalid_texts_in_events_that_are_all_different_are_counted(odd: bytes) -> None:
    events = [chunk({"content": word}, obfuscation=f"{number:x}") for number, word in enumerate(WORDS)]
    reader = chat_reader()
    read(reader, [text("a"), *(each.replace(b"word", odd) for each in events), STOP, DONE])
    said = len("".join(WORDS)) + 1
    assert said - 2 * len(WORDS) <= reader.delivered_characters() <= said + 4 * len(WORDS)
    assert reader.completion() is None


@pytest.mark.parametrize("first", [b"", b"content_block_start"])
def test_the_text_of_a_block_that_was_never_begun_is_counted(first: bytes) -> None:
    events = stream_of("anthropic_messages")
    if first:
        events = [each for each in events if first not in each]
    else:
        events = [each.replace(b'"index":0', b'"index":1') for each in events]
    for pieces in (events, [b"".join(events)]):
        reader = MessagesRelay()
        read(reader, pieces)
        assert reader.delivered_characters() == len("".join(WORDS))
        assert reader.delivered_text() == "".join(WORDS)
        assert reader.completion() is None


@pytest.mark.parametrize("index", ["0", 1.5, None, True, [0], -1])
def test_the_text_of_a_delta_with_an_odd_index_is_counted(index: object) -> None:
    begin, stop = stream_of("anthropic_messages")[:2], stream_of("anthropic_messages")[-3:]
    delta = {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": "word"}}
    reader = MessagesRelay()
    read(reader, [*begin, named(delta), *stop])
    assert (reader.delivered_text(), reader.completion()) == ("word", None)


def test_an_answer_with_a_block_that_begins_twice_is_not_stored() -> None:
    """The gateway would put the texts into other blocks than the client."""
    events = stream_of("anthropic_messages")
    reader = MessagesRelay()
    read(reader, [*events[:2], *events[1:]])
    assert reader.delivered_text() == "".join(WORDS)
    assert reader.completion() is None


@pytest.mark.parametrize("index", ["0", 1.5, [0], {}, 10**30])
def test_the_text_of_a_choice_or_call_with_an_odd_index_is_counted(index: object) -> None:
    for delta, at, said in (
        ({"content": "word"}, index, "word"),
        ({"tool_calls": [{"index": index, "function": {"name": "f", "arguments": "{}"}}]}, 0, "f\n{}"),
    ):
        choice = {"index": at, "delta": delta}
        reader = chat_reader()
        read(reader, [_plain({"choices": [choice]}), STOP, DONE])
        assert (reader.delivered_text(), reader.completion()) == (said, None)


def _plain(value: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % json.dumps(value).encode()  # orjson writes no integers of any size


def test_events_after_the_end_are_not_passed_on_even_if_they_arrive_with_it() -> None:
    events = stream_of("openai_responses")
    clients: tuple[DialectName, ...] = ("openai_chat", "anthropic_messages", "openai_completions")
    for client in clients:
        one, both = (wire(client, "openai_responses").reader(request(client)) for _ in range(2))
        alone = read(one, events) + one.ending
        together = read(both, [b"".join(events + events[2:])]) + both.ending
        assert [re.sub(rb'"created":\d+', b"", each) for each in (alone, together)] == [
            re.sub(rb'"created":\d+', b"", alone)
        ] * 2


@pytest.mark.parametrize("name", ["ping", "response.created", "response.output_item.added", "response.completed"])
def test_an_event_without_data_is_passed_on_unread(name: str) -> None:
    events = stream_of("openai_responses")
    empty = b"event: %b\n\n" % name.encode()
    for pieces in ([events[0], empty, *events[1:]], [events[0] + empty + b"".join(events[1:])]):
        reader = ResponsesRelay()
        assert read(reader, pieces) == events[0] + empty + b"".join(events[1:-1])
        assert reader.ending == events[-1]


def test_a_final_event_without_the_text_that_was_streamed_is_no_answer_for_other_requests() -> None:
    *begin, last = stream_of("openai_responses")
    reader = ResponsesRelay()
    read(reader, [*begin, last])
    assert reader.completion() is None
    item = {"type": "message", "content": [{"type": "output_text", "text": "".join(WORDS)}]}
    full = last.replace(b'"output":[]', b'"output":[%b]' % orjson.dumps(item))
    for events in ([*begin, full], [begin[0], last]):
        reader = ResponsesRelay()
        read(reader, events)
        assert reader.completion() is not None


def test_line_breaks_before_the_first_event_do_not_change_how_later_events_are_read() -> None:
    odd = b"Data: no field\n\n"
    pieces = [b"\n\n", text("a"), text("b"), odd, STOP, DONE]
    reader = chat_reader()
    assert read(reader, pieces) == b"".join(pieces[:-1])
    with pytest.raises(BackendGarbage, match="did not answer with an event stream"):
        read(chat_reader(), [b"\n\n", odd])


def test_an_event_of_many_lines_is_put_together_once() -> None:
    class Counting(sse.Framer):
        joined = 0

        def rest(self) -> bytes:
            self.joined += 1
            return super().rest()

    framer, lines = Counting(), 2000
    for line in [b"data: {\n", *[b"data: \n", b"data: \r\n"] * lines, b"data: }\n"]:
        assert framer.feed(line) == b""
    assert framer.joined == 0
    whole = framer.feed(b"\n")
    assert (sse.payload(whole), framer.joined) == (b"{" + b"\n" * (2 * lines + 1) + b"}", 1)


ENDLESS: dict[str, Callable[[int], dict[str, Any]]] = {
    "choices": lambda number: {"choices": [{"index": number, "delta": {"content": ""}}]},
    "fields of the answer": lambda number: {"choices": [], f"field {number}": "x" * 90},
    "fields of a choice": lambda number: {"choices": [{"index": 0, "delta": {}, f"field {number}": "x" * 90}]},
    "fields of a message": lambda number: {"choices": [{"index": 0, "delta": {f"field {number}": ""}}]},
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_an_answer_without_end_needs_little_memory(kind: str) -> None:
    assembly, made = Assembly(), ENDLESS[kind]
    tracemalloc.start()
    for number in range(40_000):
        assembly.add(event(made(number)))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 2 * 2**20
    assembly.add(chunk({"content": "said"}))
    assert assembly.characters == len("said")


def test_blocks_without_end_need_little_memory() -> None:
    reader = MessagesRelay()
    reader.feed(stream_of("anthropic_messages")[0])
    tracemalloc.start()
    for number in range(20_000):
        begun = {"type": "content_block_start", "index": number, "content_block": {"type": "text", "text": ""}}
        reader.feed(named(begun))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 3 * 2**20


def test_all_choices_of_one_answer_are_stored() -> None:
    assembly = Assembly()
    for index in range(128):
        assembly.add(chunk({"content": str(index)}, "stop", index))
    whole = orjson.loads(assembly.completion(None) or b"{}")
    assert [choice["message"]["content"] for choice in whole["choices"]] == [str(index) for index in range(128)]
    assembly.add(chunk({"content": "one too many"}, "stop", 128))
    assert assembly.completion(None) is None
    assert "one too many" in assembly.text()
