"""Runs of events that differ in nothing but their text."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.chat_assembly import Assembly
from gateway.dialects.text_run import TextRun
from tests.dialects.samples import STOP, chunk, steady, text


def assemble(*blocks: bytes) -> Assembly:
    assembly = Assembly()
    for block in blocks:
        assembly.add(block)
    return assembly


PARTS = st.sampled_from(
    [
        *(text(one) for one in ("a", "b c", 'say "x"', "\\", "\n", "é🌈", '"},"finish_reason":null}]}', "")),
        *(chunk({"role": "assistant", "content": one}) for one in ("d", "e")),
        *(chunk({"reasoning_content": one, "content": None}) for one in ("f", "g")),
        *(chunk({"content": one}, index=1) for one in ("h", "i")),
        *(chunk({"content": one}, created=2) for one in ("j", "k")),
        b": ping\n\n",
    ]
)


@steady
@given(st.lists(PARTS, max_size=40), st.booleans())
def test_runs_of_text_say_the_same_as_single_events(parts: list[bytes], returns: bool) -> None:
    parts = [text("start"), *parts, chunk({}, "stop", index=1), STOP]
    block = b"".join(parts)
    together = assemble(block.replace(b"\n\n", b"\r\n\r\n") if returns else block)
    single = assemble(*parts)
    assert together.unreadable == single.unreadable == 0
    assert together.text() == single.text()
    assert together.completion(None) == single.completion(None)


def test_a_run_takes_only_events_that_differ_in_nothing_but_the_text() -> None:
    first = text("a")
    run = TextRun.after(first, orjson.loads(first[6:]))
    alike = text("b") + text("é \\ c") + text("")
    for other in (
        STOP,
        text('"'),
        chunk({"content": "x"}, created=2),
        chunk({"content": "x"}, index=1),
        text("z")[:-9],
    ):
        assert run.take(alike + other, 0) == len(alike)
        assert orjson.loads(run.text()) == "bé \\ c"
    assert run.text() == b""


def test_a_run_longer_than_the_window_is_taken_to_its_end() -> None:
    first = text("a")
    run = TextRun.after(first, orjson.loads(first[6:]))
    block = text("word ") * 1000 + text("x" * 20_000) + text("y")
    assert run.take(block, 0) == 1000 * len(text("word "))
    assert len(run.text()) == 5002
