"""Appends rows that do not come from a request to the ledger. The rows go through a journal, so that they become part
of the ledger's hash chain."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from gateway.ledger.journal import segments
from gateway.ledger.rows import FIELDS, Row


def append(directory: Path, rows: Iterable[Row], source: str) -> int:
    """Write `rows` to a new journal in `directory`, and return their number. `source`: name of the program that writes;
    it becomes part of the file's name. Rows that are already in the ledger count only once. Raises OSError; the rows
    written before the error are kept."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = segments.create(segments.Segment.at(directory, segments.new_lane(source), 1), FIELDS)
    count = 0
    try:
        for row in rows:
            line = segments.encode({"close": tuple(row)})
            while line:
                line = line[os.write(fd, line) :]
            count += 1
    finally:
        segments.retire(fd)
    return count
