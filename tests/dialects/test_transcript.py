"""What a stream has said so far."""

from __future__ import annotations

import pytest

from gateway.dialects.transcript import Transcript
from tests.dialects.samples import chunk, text


def test_a_long_stream_is_understood_bit_by_bit() -> None:
    transcript = Transcript()
    for number in range(3000):
        transcript.keep(text(f"{number} "))
    assert transcript.chunks == 3000
    assert transcript.read().text() == "".join(f"{number} " for number in range(3000))
    assert transcript.read() is transcript.read()


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
