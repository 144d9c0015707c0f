"""What a stream has said so far."""

from __future__ import annotations

from gateway.dialects.transcript import Transcript
from tests.dialects.samples import text


def test_a_long_stream_is_understood_bit_by_bit() -> None:
    transcript = Transcript()
    for number in range(3000):
        transcript.keep(text(f"{number} "))
    assert transcript.chunks == 3000
    assert transcript.read().text() == "".join(f"{number} " for number in range(3000))
    assert transcript.read() is transcript.read()
