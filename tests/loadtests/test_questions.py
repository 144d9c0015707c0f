"""The judge of answers: lets the right one pass and says what is wrong with any other."""

from __future__ import annotations

from itertools import pairwise

import orjson
import pytest

from loadtests.agent_answers import PATHS, fault_in_answer, filled, made
from loadtests.questions import MARK, Dialect, Questions, Shape, fault_in_plain, fault_in_stream, text_of
from loadtests.sessions import CONVERSATION, Sessions
from loadtests.upstream import Answers

BASE = 256


def plain(number: int = 7) -> bytes:
    return Answers().plain(number, BASE).partition(b"\r\n\r\n")[2]


def stream(number: int = 7, chunks: int = 5) -> bytes:
    """The events without the HTTP chunks around them."""
    answers = Answers()
    framed = answers.burst(number, chunks) + answers.ending(number, BASE)
    return b"".join(line + b"\n" for line in framed.split(b"\n") if line.startswith(b"data:") or not line)


@pytest.mark.parametrize(
    "shape", [Shape(), Shape("burst"), Shape("paced", bytes=32 * 1024), Shape(known=9), Shape(short=True)]
)
def test_a_question_tells_the_upstream_all_it_needs_and_is_as_long_as_it_should_be(shape: Shape) -> None:
    body = Questions(shape, "m").body(1234)
    mark = MARK.search(body)
    assert mark is not None
    assert (int(mark[1]), mark[2].decode(), int(mark[4])) == (1234, shape.kind, shape.base_tokens)
    messages = orjson.loads(body)["messages"]
    assert sum(len(each["content"]) for each in messages) == pytest.approx(shape.bytes, abs=20)


def test_known_words_come_after_a_system_prompt_of_their_own() -> None:
    questions = Questions(Shape(known=3), "m")
    first, again, other = (orjson.loads(questions.body(number))["messages"] for number in (3, 6, 4))
    assert first[-1] == again[-1] != other[-1]
    assert first[0] != again[0]


def test_the_right_plain_answer_passes() -> None:
    assert fault_in_plain(plain(), 7, BASE) == ""


@pytest.mark.parametrize(
    ("lie", "told"),
    [
        (lambda body: body.replace(b"[00000007]", b"[00000008]"), "another question's text"),
        (lambda body: body.replace(b'"completion_tokens":207', b'"completion_tokens":206'), "usage"),
        (lambda body: body.replace(b'"stop"', b'"length"'), "finish_reason"),
        (lambda body: body[:-30], "not a completion"),
        (lambda body: b'{"choices": []}', "not a completion"),
        (lambda body: body.replace(text_of(7).encode(), text_of(7)[:-1].encode()), "another question's text"),
    ],
)
def test_any_other_plain_answer_is_told_from_it(lie: object, told: str) -> None:
    assert callable(lie)
    assert told in fault_in_plain(lie(plain()), 7, BASE)


def test_the_right_stream_passes() -> None:
    assert fault_in_stream(stream(), 7, BASE, 5) == ""


@pytest.mark.parametrize(
    ("lie", "told"),
    [
        (lambda body: body.replace(b"00000007.003", b"00000008.003"), "another question's"),
        (lambda body: body.replace(b" 00000007.004", b" 00000007.003"), "another question's"),
        (lambda body: body.replace(b'"content":" 00000007.002"', b'"content":""'), "4 of 5 chunks"),
        (lambda body: body.replace(b"data: [DONE]", b""), "no terminating event"),
        (lambda body: body.replace(b'"stop"', b"null"), "finish_reason"),
        (lambda body: body.replace(b'"prompt_tokens":263', b'"prompt_tokens":264'), "usage"),
        (lambda body: body + body, "10 of 5 chunks"),
    ],
)
def test_any_other_stream_is_told_from_it(lie: object, told: str) -> None:
    assert callable(lie)
    assert told in fault_in_stream(lie(stream()), 7, BASE, 5)


def read(dialect: Dialect, number: int = 7, chunks: int = 5) -> bytes:
    return filled(b"".join(made(dialect, chunks)), number, BASE)


@pytest.mark.parametrize("dialect", PATHS)
def test_the_right_answer_to_an_agent_passes(dialect: Dialect) -> None:
    assert fault_in_answer(dialect, read(dialect), 7, BASE, 5) == ""
    assert "another question's" in fault_in_answer(dialect, read(dialect), 8, BASE, 5)


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (b'" 00000007.002"', b'""', "chunks"),
        (b'part_"', b'path_"', "the tool call"),
        (b"    263", b"    264", "usage"),
        (b"    207", b"    206", "usage"),
        (b"data: ", b"date: ", "not a stream"),
        (b'"finish_reason":"tool_calls"', b'"finish_reason":"stop"', "finish"),
        (b'"stop_reason":"tool_use"', b'"stop_reason":"end_turn"', "finish"),
        (b'"type":"response.completed"', b'"type":"response.incomplete"', "finish"),
        (b"data: [DONE]", b"", "finish"),
    ],
)
def test_any_other_answer_to_an_agent_is_told_from_it(dialect: Dialect, old: bytes, new: bytes, told: str) -> None:
    answer = read(dialect)
    if old in answer:
        assert told in fault_in_answer(dialect, answer.replace(old, new), 7, BASE, 5)


def test_an_agents_answer_is_as_long_for_every_question() -> None:
    """So that the frames of HTTP around its events can be made once."""
    assert len({len(read("chat", number)) for number in (1, 9_000_000, 99_999_998)}) == 1


@pytest.mark.parametrize("dialect", PATHS)
def test_each_request_of_a_session_repeats_the_one_before_and_adds_to_it(dialect: Dialect) -> None:
    shape = Shape("calls", bytes=310 * 1024, turns=100, dialect=dialect)
    sessions = Sessions(shape, "m")
    numbers = [number for number in range(0, 32 * 100, 32) if sessions.place(number)[0] == 0]
    assert [sessions.place(number)[1] for number in numbers] == list(range(100))
    own = [sessions.body(number) for number in numbers]
    for before, after in pairwise(own):
        mark = MARK.search(before)
        assert mark is not None
        assert after.startswith(before[: before.rindex(b',{"', 0, mark.start())]), "the last message alone is another"
        assert len(after) > len(before) + 4000
    assert 19_000 < len(own[0]) < 22_000
    assert sum(map(len, own)) / len(own) == pytest.approx(shape.bytes, rel=0.05)
    mark = MARK.search(own[50])
    assert mark is not None
    assert (int(mark[1]), mark[2], int(mark[4])) == (50 * 32, b"calls", shape.base_tokens)
    kinds = [item.get("role") or item["type"] for item in orjson.loads(own[1])[CONVERSATION[dialect]]]
    assert (
        kinds
        == {
            "chat": ["system", "user", "assistant", "tool", "user"],
            "messages": ["user", "assistant", "user", "user"],
            "responses": ["user", "function_call", "function_call_output", "user"],
        }[dialect]
    )


def test_sessions_at_the_same_time_are_at_different_points() -> None:
    sessions = Sessions(Shape("calls", bytes=310 * 1024, turns=100), "m")
    turns = [sessions.place(number)[1] for number in range(32)]
    assert len(set(turns)) == 32
    assert max(turns) - min(turns) > 90


def test_one_client_has_one_session_after_the_other() -> None:
    sessions = Sessions(Shape("calls", bytes=107 * 1024, turns=30, at_a_time=1), "m")
    assert [sessions.place(number) for number in (0, 29, 30, 61)] == [(0, 0), (0, 29), (1, 0), (2, 1)]
