"""Lines carry their own check, and files the order in which they were written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ledger.journal import segments
from gateway.ledger.journal.segments import READ_BYTES, Segment, checked, encode

TEXTS = st.text(st.characters(exclude_categories=("Cs",)))


@given(st.dictionaries(TEXTS, st.integers(-(2**63), 2**63 - 1) | TEXTS | st.lists(TEXTS)))
def test_what_is_encoded_is_one_line_that_passes_its_check(entry: dict[str, Any]) -> None:
    line = encode(entry)
    assert line.count(b"\n") == 1
    payload = checked(line[:-1])
    assert payload is not None
    assert orjson.loads(payload) == entry


@given(st.data())
def test_a_line_with_a_changed_byte_fails_its_check(data: st.DataObject) -> None:
    line = bytearray(encode({"open": "req_1-1", "tokens": 12})[:-1])
    place = data.draw(st.integers(0, len(line) - 1).filter(lambda place: place != 8))  # 8: the space says nothing
    line[place] ^= data.draw(st.sampled_from([1, 2, 4, 8, 16, 64, 128]))
    found = checked(bytes(line))
    assert found is None or found == encode({"open": "req_1-1", "tokens": 12})[9:-1]


@pytest.mark.parametrize("garbage", [b"", b"x", b"0" * 9, b"zzzzzzzz {}", b"\0" * 100])
def test_garbage_fails_its_check(garbage: bytes) -> None:
    assert checked(garbage) is None or garbage == b"0" * 9  # the check of nothing is 0


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    segment = Segment.at(tmp_path, "lane", 1)
    os.close(segments.create(segment, ["id", "at"]))
    return segment


def test_a_segment_names_its_fields_first(segment: Segment) -> None:
    assert segments.fields(segment) == ["id", "at"]
    (head,), end = segments.read(segment, 0)
    assert checked(head) is not None
    assert end == len(head) + 1
    assert segments.read(segment, end) == ([], end)
    segment.path.write_bytes(b"torn")
    assert segments.fields(segment) is None


def test_a_line_without_its_end_is_left_for_later(segment: Segment) -> None:
    end = segment.path.stat().st_size
    line = encode({"mark": 1})
    with segment.path.open("ab") as file:
        file.write(line[:-1])
        file.flush()
        assert segments.read(segment, end) == ([], end)
        file.write(b"\n")
    (found,), after = segments.read(segment, end)
    assert (checked(found), after) == (b'{"mark":1}', end + len(line))


def test_a_line_longer_than_the_piece_is_read_whole(segment: Segment) -> None:
    end = segment.path.stat().st_size
    with segment.path.open("ab") as file:
        file.write(encode({"grown": "x" * (READ_BYTES + 5)}) + encode({"mark": 1}))
    lines, _ = segments.read(segment, end)
    assert [checked(line) is not None for line in lines] == [True, True]


def test_lanes_are_told_apart_and_segments_ordered(tmp_path: Path) -> None:
    for name in ("b.000002", "b.000010", "b.000001", "a-1.000001"):
        (tmp_path / f"{name}.journal").touch()
    for name in ("writer.lock", "c.000001.new", "nonsense.journal", "refused.jsonl"):
        (tmp_path / name).touch()
    found = segments.lanes(tmp_path)
    assert {lane: [segment.number for segment in files] for lane, files in found.items()} == {
        "a-1": [1],
        "b": [1, 2, 10],
    }


def test_a_lanes_name_is_unique_short_and_a_file_name(tmp_path: Path) -> None:
    names = {segments.new_lane("host/../0 " + "x" * 200) for _ in range(100)}
    assert len(names) == 100
    assert all(len(name) <= 120 and "/" not in name and "." not in name for name in names)


def test_readers_do_not_stand_in_each_others_way(segment: Segment, tmp_path: Path) -> None:
    with segments.ended(tmp_path, segment) as first, segments.ended(tmp_path, segment) as second:
        assert first
        assert second
        assert segments.released(segment)


def test_a_segment_that_has_a_next_one_is_not_the_end(segment: Segment, tmp_path: Path) -> None:
    following = segments.create(Segment.at(tmp_path, "lane", 2), ["id"])
    with segments.ended(tmp_path, segment) as ended:
        assert not ended
    os.close(following)


def test_a_name_that_is_taken_is_not_written_over(segment: Segment, tmp_path: Path) -> None:
    segment.path.with_suffix(".new").touch()
    with pytest.raises(FileExistsError):
        segments.create(segment, ["id"])
