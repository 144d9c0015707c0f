from __future__ import annotations

import numpy as np
import pytest

from gateway.cache.entry import Entry, Flush, decode, encode, encode_flush
from gateway.cache.key import Question


def as_read(fields: dict[str | bytes, bytes]) -> dict[bytes, bytes]:
    return {name.encode() if isinstance(name, str) else name: value for name, value in fields.items()}


def test_an_entry_comes_back_from_the_log_as_it_went() -> None:
    vector = np.linspace(-1, 1, 384, dtype=np.float32)
    entry = Entry(b"d" * 16, "a", ("x", "y"), 1.5, 2.5, 10, Question(b"p" * 16, "¿Qué?"), vector)
    back, author = decode(as_read(encode(entry, "me")))
    assert isinstance(back, Entry)
    assert author == "me"
    assert (back.digest, back.team, back.tags, back.asked_at, back.expires_at, back.size, back.question) == (
        entry.digest,
        *("a", ("x", "y"), 1.5, 2.5, 10, Question(b"p" * 16, "¿Qué?")),
    )
    assert back.vector is not None
    assert np.abs(back.vector - vector).max() < 1e-3


def test_a_flush_comes_back_too() -> None:
    assert decode(as_read(encode_flush(Flush("a", 3.0, "x")))) == (Flush("a", 3.0, "x"), "")


def test_what_no_worker_of_ours_wrote_is_an_error() -> None:
    with pytest.raises((KeyError, ValueError)):
        decode({b"op": b"put", b"meta": b"{}"})
