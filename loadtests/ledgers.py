"""What the measured gateway has on its ledger, read as SQL, and how it compares with what the upstream sent."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

DRAIN_S = 60.0
"""Longest that the rows of a run may take to arrive."""
_SUMS = """
SELECT count(*), coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0), coalesce(sum(cost_pico), 0),
       count(DISTINCT request_id), coalesce(sum(outcome != 'ok'), 0), coalesce(sum(estimated), 0)
FROM ledger WHERE rowid > ? AND (backend != '') = ?
"""


class Sums(NamedTuple):
    """Rows and tokens since a place in the ledger."""

    rows: int
    input_tokens: int
    output_tokens: int
    cost_pico: int
    requests: int
    not_ok: int
    estimated: int


class Ledger:
    """A SQLite ledger that another process writes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def place(self) -> int:
        """Rows that are written later lie beyond it."""
        return self._ask("SELECT coalesce(max(rowid), 0) FROM ledger")[0]

    def bought(self, place: int) -> Sums:
        """Of attempts on a backend."""
        return self._sums(place, called=True)

    def recalled(self, place: int) -> Sums:
        """Of answers from the cache."""
        return self._sums(place, called=False)

    def drained(self, place: int, rows: int, patience_s: float = DRAIN_S) -> bool:
        """Wait until `rows` rows lie beyond `place`."""
        until = time.monotonic() + patience_s
        while self._ask("SELECT count(*) FROM ledger WHERE rowid > ?", place)[0] < rows:
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True

    def _sums(self, place: int, *, called: bool) -> Sums:
        return Sums(*self._ask(_SUMS, place, called))

    def _ask(self, question: str, *values: object) -> tuple[int, ...]:
        with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True, timeout=10)) as connection:
            found: tuple[int, ...] = connection.execute(question, values).fetchone()
            return found
