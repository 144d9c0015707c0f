"""What a stream has said so far."""

from __future__ import annotations

import pytest

from gateway.dialects.streams.transcript import Transcript
from tests.dialects.samples import STOP, chunk, text


def test_a_long_stream_is_understood_bit_by_bit() -> None:
    transcript = Transcript()
    for number in range(3000):
        transcript.keep(text(f"{number} "))
    assert transcript.chunks == 3000
    assert transcript.read().text() == "".join(f"{number} " for number in range(3000))
    assert transcript.read() is transcript.read()


def test_a_very_long_answer_is_counted_and_only_its_beginning_kept() -> None:
    transcript = Transcript()
    for number in range(400):
        transcript.keep(chunk({"content": "w" * 999 + " ", "refusal": None}, created=number % 2))
    transcript.keep(STOP)
    said = transcript.read()
    assert (said.characters, said.finish, transcript.chunks) == (400_000, "stop", 401)
    assert said.text() == ("w" * 999 + " ") * 65 + "w" * 536
    assert said.completion(None) is None


def test_events_that_are_never_alike_are_kept_as_they_come_and_a_run_among_them_is_found() -> None:
    odd = [chunk({"content": f"{number} "}, obfuscation="x" * number) for number in range(150)]
    even = [text(f"{number} ") for number in range(150, 300)]
    transcript = Transcript()
    for block in (*odd[:50], b"".join(odd[50:]), *even[:100], b"".join(even[100:])):
        transcript.keep(block)
    assert transcript.chunks == 300
    assert transcript.read().text() == "".join(f"{number} " for number in range(300))


@pytest.mark.parametrize(
    ("first", "silent"),
    [
        (chunk({"role": "assistant", "content": ""}), 1),
        (chunk({"role": "assistant", "content": None, "refusal": None}), 1),
        (chunk({"role": "assistant", "content": "Hola"}), 0),
        (chunk({"role": "assistant", "tool_calls": [{"index": 0}]}), 0),
        (b'data: {"delta" no JSON\n\n', 0),
        (b'data: {"choices": [7, {"delta": 7}]}\n\n', 1),
    ],
)
def test_only_a_first_chunk_without_content_is_silent(first: bytes, silent: int) -> None:
    transcript = Transcript()
    transcript.keep(first + text("a"))
    transcript.keep(chunk({"role": "assistant", "content": ""}))
    assert (transcript.chunks, transcript.silent) == (3, silent)
