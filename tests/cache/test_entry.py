from __future__ import annotations

import numpy as np
import orjson
import pytest

from gateway.cache.entry import (
    Batch,
    Check,
    Entry,
    Flush,
    Gone,
    Judged,
    Wrong,
    decode,
    encode,
    encode_flush,
    encode_gone,
    encode_judged,
    encode_wrong,
    name_of,
)
from gateway.cache.keys import Question
from gateway.cache.packing import pack, unpack


def as_read(fields: dict[str | bytes, bytes]) -> dict[bytes, bytes]:
    return {name.encode() if isinstance(name, str) else name: value for name, value in fields.items()}


def test_entries_come_back_from_the_log_as_they_went() -> None:
    one, two = np.linspace(-1, 1, 384, dtype=np.float32), np.linspace(0, 1, 4, dtype=np.float32)
    entries = [
        Entry(b"d" * 16, "a", ("x", "y"), 1.5, 2.5, 10, Question(b"p" * 16, "¿Qué?"), pack(one), "place", 700),
        Entry(b"e" * 16, "b", (), 1.0, 2.0, 3, None, None, "place"),
        Entry(b"f" * 16, "a", (), 1.0, 2.0, 3, Question(b"q" * 16, "no vector"), None, "place"),
        Entry(b"g" * 16, "a", (), 1.0, 2.0, 3, Question(b"q" * 16, "why"), pack(two), "place"),
    ]
    fields = as_read(encode(Batch("me-1", "place", "e1", entries)))
    back = decode(fields)
    assert isinstance(back, Batch)
    assert name_of(fields) == b"me-1"
    assert (back.name, back.place, back.epoch) == ("me-1", "place", "e1")
    assert [entry[:6] for entry in back.entries] == [entry[:6] for entry in entries]
    assert [entry.worth_pico for entry in back.entries] == [700, 0, 0, 0]
    assert [entry.question for entry in back.entries] == [entries[0].question, None, None, entries[3].question]
    assert {entry.place for entry in back.entries} == {"place"}
    for read, vector in ((back.entries[0].vector, one), (back.entries[3].vector, two)):
        assert read is not None
        assert np.abs(unpack(read, len(vector))[0] - vector).max() < 1e-3


def test_a_flush_comes_back_too() -> None:
    fields = as_read(encode_flush(Flush("a", 3.0, "x", "docs/")))
    assert decode(fields) == Flush("a", 3.0, "x", "docs/")
    assert name_of(fields) == b""


def test_what_was_let_go_and_what_was_wrong_come_back() -> None:
    entry = Entry(b"d" * 16, "a", (), 1.0, 2.0, 3, place="place")
    assert decode(as_read(encode_gone("author-1", [entry]))) == Gone([(b"d" * 16, "place")])
    assert decode(as_read(encode_wrong(Wrong("req_1", "a")))) == Wrong("req_1", "a")


def test_rows_of_earlier_versions_are_read() -> None:
    rows = [[(b"d" * 16).hex(), "a", [], 1.0, 2.0, 3], [(b"e" * 16).hex(), "a", [], 1.0, 2.0, 3, b"p".hex(), "why", 2]]
    vector = np.array([1, 2], dtype=np.float16)
    fields = {b"op": b"put", b"meta": orjson.dumps(["place", "e1", rows]), b"vectors": vector.tobytes()}
    back = decode(fields)
    assert isinstance(back, Batch)
    assert [(entry.worth_pico, entry.question) for entry in back.entries] == [(0, None), (0, Question(b"p", "why"))]


@pytest.mark.parametrize("fields", [{b"op": b"put", b"meta": b"{}"}, {b"op": b"put", b"meta": b"[1,2,3]"}, {}])
def test_what_no_worker_of_ours_wrote_is_an_error(fields: dict[bytes, bytes]) -> None:
    with pytest.raises((KeyError, ValueError, TypeError)):
        decode(fields)


def test_what_was_judged_comes_back() -> None:
    judged = Judged("me", {"team/a/b": [10.0, 4, 2, 1, 0, 40.0, 800.0, 20.0]}, [Check("team/a/b", 0.9, True, 0.05)])
    assert decode(as_read(encode_judged(judged))) == judged
