"""Runs of events that differ in nothing but their text."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.openai_chat.assembly import Assembly
from gateway.dialects.streams.text_run import AlikeEvents, TextRun, decoded, encoded
from gateway.dialects.streams.transcript import Transcript
from tests.dialects.samples import STOP, chunk, steady, text


def begun(first: bytes) -> TextRun:
    run = TextRun.after(first, orjson.loads(first[6:]))
    assert run is not None
    assert text_of(run) == run.holder[run.field]  # the text of the first event is taken with those of the next
    return run


def text_of(run: TextRun) -> object:
    said = run.take_text()
    assert said is not None
    return orjson.loads(b'"%b"' % said.text)


def kept(*blocks: bytes) -> Assembly:
    transcript = Transcript()
    for block in blocks:
        transcript.keep(block)
    return transcript.read()


def parsed(*blocks: bytes) -> Assembly:
    assembly = Assembly()
    for block in blocks:
        assembly.add(block)
    return assembly


def arguments(piece: str, index: int | None = 0, **more: str) -> bytes:
    """A piece of the arguments of a call. `more`: further fields of its function."""
    call = {"function": {**more, "arguments": piece}}
    return chunk({"tool_calls": [call if index is None else {"index": index, **call}]})


PARTS = st.sampled_from(
    [
        *(text(one) for one in ("a", "b c", 'say "x"', "\\", "\n", "é🌈", '"},"finish_reason":null}]}', "")),
        *(chunk({"role": "assistant", "content": one}) for one in ("d", "e")),
        *(chunk({"reasoning_content": one, "content": None}) for one in ("f", "g")),
        *(chunk({"content": one}, index=1) for one in ("h", "i")),
        *(chunk({"content": one}, created=2) for one in ("j", "k")),
        *(arguments(one) for one in ('{"a', '":', '"b\\n"}', "\\", "é", "")),
        *(arguments(one, index=1) for one in ("1", "2")),
        *(arguments(one, name="look", id="call_1") for one in ("{", "}")),
        *(arguments(one, input="x") for one in ("3", "4")),
        b": ping\n\n",
    ]
)


@steady
@given(st.lists(PARTS, max_size=40), st.booleans())
def test_runs_of_text_say_the_same_as_single_events(parts: list[bytes], returns: bool) -> None:
    parts = [text("start"), *parts, chunk({}, "stop", index=1), STOP]
    block = b"".join(parts)
    together = kept(block.replace(b"\n\n", b"\r\n\r\n") if returns else block)
    single = parsed(*parts)
    assert together.unreadable == single.unreadable == 0
    assert together.text() == single.text()
    assert together.completion(None) == single.completion(None)


def test_a_run_takes_only_events_that_differ_in_nothing_but_the_text() -> None:
    run = begun(text("a"))
    alike = text("b") + text("é \\ c") + text("") + text('"')
    for other in (
        STOP,
        text("\\").replace(rb"\\", b"\\"),
        text("x").replace(b"x", b"x\n\nevent: error\ndata: y"),
        chunk({"content": "x"}, created=2),
        chunk({"content": "x"}, index=1),
        text("z")[:-9],
    ):
        assert run.take(alike + other) == (len(alike), 4)
        assert text_of(run) == 'bé \\ c"'
    assert run.take_text() is None


def test_arguments_are_read_as_a_run_too() -> None:
    run = begun(arguments('{"'))
    alike = arguments('a"') + arguments(":") + arguments('"\\n"}')
    assert run.take(alike + text("x")) == (len(alike), 3)
    whole = kept(arguments('{"') + alike + chunk({}, "tool_calls")).completion(None)
    assert whole is not None
    (call,) = orjson.loads(whole)["choices"][0]["message"]["tool_calls"]
    assert call == {"function": {"arguments": '{"a":"\\n"}'}}


@pytest.mark.parametrize(
    "event",
    [
        arguments("a", index=None),
        arguments("a", input="b"),
        arguments("a", name="look"),
        arguments(""),
        chunk({"content": "role", "role": "content"}).replace(b'"content":', b'"c\\u006fntent":'),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": "a"}, "custom": {"input": "b"}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": "a"}}] * 2}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": "a"}}], "content": "b"}),
        chunk({"content": "a"}, "stop"),
        chunk({"content": "a"}, usage={"prompt_tokens": 1}),
        chunk({"content": "a"}, x_groq={"id": "r"}),
    ],
)
def test_no_run_begins_with_an_event_of_which_more_than_one_text_counts(event: bytes) -> None:
    assert TextRun.after(event, orjson.loads(event[6:])) is None


@steady
@given(st.lists(PARTS, max_size=40), st.integers(1, 30))
def test_the_upper_bound_of_characters_is_never_below_their_number(parts: list[bytes], size: int) -> None:
    transcript = Transcript()
    for at in range(0, len(parts), size):
        transcript.keep(b"".join(parts[at : at + size]))
        assert transcript.most_characters >= transcript.read().characters


def test_a_run_longer_than_the_window_is_taken_to_its_end() -> None:
    run = begun(text("a"))
    block = text("word ") * 1000 + text("x" * 40_000) + text("y")
    assert run.take(block) == (len(block), 1002)
    assert text_of(run) == "word " * 1000 + "x" * 40_000 + "y"


CONTENT = st.text(alphabet=st.sampled_from('ab"\\\n,ñ🌈') | st.characters(exclude_categories=["Cs"]), max_size=5)


@steady
@given(st.lists(CONTENT, min_size=1, max_size=9))
def test_texts_are_encoded_and_decoded_together_as_one_by_one(texts: list[str]) -> None:
    contents = [orjson.dumps(each)[1:-1] for each in texts]
    assert encoded(texts) == contents
    assert decoded(contents) == texts


@pytest.mark.parametrize(
    "contents",
    [[b'a","b'], [b"a\\", b',"c'], [b'a",[', b'],"b'], [b"\\ud800"], [b"a\nb"], [b"\\x"], [b'",1,"'], [b'"', b'"']],
)
def test_a_text_that_is_not_valid_is_refused_whatever_stands_beside_it(contents: list[bytes]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - orjson's, or our own
        decoded(contents)


def test_alike_events_are_read_up_to_another_one() -> None:
    run = begun(text("a"))
    alike = AlikeEvents(run.head, run.tail)
    end, contents, texts = alike.take(text("b") + text('"') + STOP, 0)
    assert (end, contents, texts) == (len(text("b") + text('"')), [b"b", b'\\"'], ["b", '"'])
    assert alike.take(STOP + text("b"), 0) == (0, [], [])


def test_after_events_between_alike_ones_many_are_left_to_be_read_singly() -> None:
    run = begun(text("a"))
    alike = AlikeEvents(run.head, run.tail)
    block = text("b") + STOP + text("c")
    assert alike.take(block, 0) == (0, [], [])
    assert sum(not alike.take(text("d"), 0)[1] for _ in range(100)) == 64
