"""The judge of answers: lets the right one pass and says what is wrong with any other."""

from __future__ import annotations

from itertools import pairwise

import orjson
import pytest

from loadtests.questions import MARK, Questions, Shape, fault_in_plain, fault_in_stream, text_of
from loadtests.sessions import AT_A_TIME, Sessions
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


def test_each_request_of_a_session_repeats_the_one_before_and_adds_to_it() -> None:
    shape = Shape("burst", bytes=310 * 1024, turns=100)
    sessions = Sessions(shape, "m")
    bodies: dict[int, list[bytes]] = {}
    for number in range(AT_A_TIME * 100):
        session, turn = sessions.place(number)
        if session == 0:
            assert turn == len(bodies.setdefault(session, []))
            bodies[session].append(sessions.body(number))
    own = bodies[0]
    assert len(own) == 100
    for before, after in pairwise(own):
        assert after.startswith(before[: before.rfind(b',{"role":"user"')])
        assert len(after) > len(before) + 4000
    assert sum(map(len, own)) / len(own) == pytest.approx(shape.bytes, rel=0.05)
    mark = MARK.search(own[50])
    assert mark is not None
    assert (int(mark[1]), mark[2], int(mark[4])) == (50 * AT_A_TIME, b"burst", shape.base_tokens)
    assert [each["role"] for each in orjson.loads(own[1])["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "user",
    ]


def test_sessions_at_the_same_time_are_at_different_points() -> None:
    sessions = Sessions(Shape("burst", bytes=310 * 1024, turns=100), "m")
    turns = [sessions.place(number)[1] for number in range(AT_A_TIME)]
    assert len(set(turns)) == AT_A_TIME
    assert max(turns) - min(turns) > 90
