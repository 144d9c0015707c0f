"""Appends rows that no request made, through a journal, so that they join the ledger's chain."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from gateway.ledger.journal import segments
from gateway.ledger.rows import FIELDS, Row


def append(directory: Path, rows: Iterable[Row], source: str) -> int:
    """How many `rows` are on the disk now, in a journal of their own in `directory`, for the host's writer to drain.

    `source` names who wrote them, in the file's name. A row whose id the ledger has counts once. Raises OSError; what
    was written until then is drained.
    """
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
