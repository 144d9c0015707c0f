"""Reading a journal back: where it is safe to resume, and what cannot be understood."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gateway.ledger.journal import segments
from gateway.ledger.journal.reader import JournalReader
from gateway.ledger.journal.segments import Segment, encode
from gateway.ledger.rows import Row, Values

BEGUN = Row._fields.index("outcome")


def row(id: str) -> list[Any]:
    return list(Row(id, "req", 1, 1.0, "acme", "search", "key")[:BEGUN])


def opened(id: str) -> dict[str, Any]:
    return {"open": row(id), "tokens": 1, "slot": None, "more": {}}


def closed(id: str) -> dict[str, Any]:
    return {"close": [*row(id), "ok"]}


class Written:
    """A lane of a dead worker."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.files = directory, list[Segment]()

    def segment(self, *entries: dict[str, Any]) -> list[int]:
        """A further segment with `entries`; where each of them begins."""
        segment = Segment.at(self.directory, "lane", len(self.files) + 1)
        os.close(segments.create(segment, Row._fields))
        self.files.append(segment)
        return [self.append(entry) for entry in entries]

    def append(self, entry: dict[str, Any]) -> int:
        with self.files[-1].path.open("ab") as file:
            position = file.tell()
            file.write(encode(entry))
        return position


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


def ids(rows: Iterable[Values]) -> list[str]:
    return [row[0] for row in rows]


def read_all(lane: JournalReader, files: list[Segment]) -> list[str]:
    found, before = [], None
    while lane.place != before:
        before = lane.place
        found += ids(lane.read(files))
    return found


def test_it_resumes_at_the_oldest_open_attempt(written: Written) -> None:
    first, second, _ = written.segment(opened("a"), opened("b"), closed("b"))
    lane = JournalReader("lane")
    assert read_all(lane, written.files) == ["b"]
    assert lane.resume == (1, first)
    written.append(closed("a"))
    assert read_all(lane, written.files) == ["a"]
    assert lane.resume == lane.place
    assert read_all(JournalReader("lane", (1, second)), written.files) == ["b", "a"]


def test_the_oldest_open_attempt_may_lie_segments_back(written: Written) -> None:
    (slow,) = written.segment(opened("slow"))
    written.segment(opened("b"), closed("b"))
    written.segment(opened("c"))
    lane = JournalReader("lane")
    assert read_all(lane, written.files) == ["b"]
    assert lane.resume == (1, slow)
    assert ids(lane.orphans()) == ["slow", "c"]


def test_earlier_segments_may_be_gone(written: Written) -> None:
    written.segment(closed("a"))
    written.segment(closed("b"))
    assert read_all(JournalReader("lane", (1, 0)), written.files[1:]) == ["b"]


def test_a_segment_is_not_left_while_its_owner_may_append(written: Written) -> None:
    written.segment()
    fd = segments.create(Segment.at(written.directory, "lane", 2), Row._fields)
    first = written.files[0].path
    held = os.open(first, os.O_WRONLY | os.O_APPEND)
    fcntl.flock(held, fcntl.LOCK_EX)
    files = [written.files[0], Segment.at(written.directory, "lane", 2)]
    os.write(fd, encode(closed("later")))
    lane = JournalReader("lane")
    assert read_all(lane, files) == []
    os.write(held, encode(closed("earlier")))
    assert read_all(lane, files) == ["earlier"]
    os.close(held)
    assert read_all(lane, files) == ["later"]
    os.close(fd)


@pytest.mark.parametrize("entry", [{"close": ["a"]}, {"close": []}, {"close": 3}, {"mark": 1.0}, {"grown": 3}])
def test_a_line_that_says_nothing_stops_no_other(
    written: Written, entry: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    written.segment(entry, closed("b"))
    lane = JournalReader("lane")
    assert read_all(lane, written.files) == ["b"]
    assert lane.damaged in (0, 1)
    assert len(caplog.records) == lane.damaged


def test_a_damaged_first_line_is_taken_for_our_own_version(written: Written) -> None:
    written.segment(closed("a"))
    path = written.files[0].path
    path.write_bytes(b"#" + path.read_bytes()[1:])
    assert read_all(JournalReader("lane"), written.files) == ["a"]


def test_what_was_reported_is_kept_for_who_is_still_open(written: Written) -> None:
    """Classes that a later version has are passed over, and marks of an earlier one report nothing."""
    reported = {"a": {"cached_tokens": 9, "input_tokens": 2, "dream_tokens": 4}, "b": {"input_tokens": 3}}
    written.segment(
        opened("a"),
        opened("b"),
        opened("c"),
        {"mark": 2.0, "grown": [["a", 5, 0], ["b", 5, 0]], "reported": reported},
        {"mark": 3.0, "grown": [["a", 6, 0], ["c", 1, 0]]},
        closed("b"),
    )
    lane = JournalReader("lane")
    read_all(lane, written.files)
    found = [(row.id, row.input_tokens, row.cached_tokens, row.output_tokens) for row in lane.orphans()]
    assert found == [("a", 2, 9, 6), ("c", 1, 0, 1)]
