"""Sums rows by quarter of an hour and by all dimensions of the reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gateway.ledger.rows import MOST_PICO, TOKENS, Row
from gateway.state.sql.tables import ledger_sums

QUARTER_S = 900
"""Length of a sum's period in seconds. All time zones differ by whole quarters of an hour, so midnight of any zone is
at the border of a period."""
_SUMMED = tuple(
    column.name
    for column in ledger_sums.columns
    if column.name.endswith(("_tokens", "_bytes", "_pico", "_ppm", "attempts"))
)
_KEY = tuple(
    column.name
    for column in ledger_sums.columns
    if column.name not in (*_SUMMED, "rollup", "number", "request_id", "requests")
)
_MONEY = ("cost_pico", "saved_pico", "decided_pico")

Key = tuple[Any, ...]
"""The values of the columns `_KEY`, then one flag for each column of `_MONEY` (whether it is None), then a flag for
whether the row has tokens."""


class _Sum(dict[str, int]):
    """The sums over all rows with the same key (see `Key`), as column → sum. A column is missing if it is None in all
    these rows."""

    def add(self, row: Row) -> bool:
        """Add a row. Returns False, and adds nothing, if the sum would be too large for its column."""
        if any((self.get(name) or 0) + (getattr(row, name) or 0) > MOST_PICO for name in _MONEY):
            return False
        self["attempts"] = self.get("attempts", 0) + 1
        for name in _SUMMED[1:]:
            if (value := getattr(row, name)) is not None:
                self[name] = self.get(name, 0) + value
        return True


def summed(rollup: str, rows: Iterable[Row], split: set[str]) -> list[tuple[Any, ...]]:
    """The rows for table `ledger_sums`, without the first column. Requests that have the same keys (see `Key`) share
    their sums; the column `requests` has the number of these requests.

    `split`: requests that have further rows elsewhere. The sums of these requests keep the request id, and have 0 in
    `requests`.
    """
    of_request: dict[str, list[Row]] = {}
    for row in rows:
        of_request.setdefault(row.request_id, []).append(row)
    alike: dict[tuple[str, frozenset[Key]], tuple[list[str], dict[Key, list[_Sum]]]] = {}
    for request, its in of_request.items():
        keyed = [(_key(row), row) for row in its]
        shape = (request if request in split else "", frozenset(key for key, _ in keyed))
        requests, sums = alike.setdefault(shape, ([], {}))
        requests.append(request)
        for key, row in keyed:
            found = sums.setdefault(key, [_Sum()])
            if not found[-1].add(row):
                found.append(_Sum())
                found[-1].add(row)
    lines: list[tuple[Any, ...]] = []
    for number, ((own, _), (requests, sums)) in enumerate(alike.items()):
        for key, one in ((key, one) for key, found in sums.items() for one in found):
            lines.append(_line(len(lines), own or f"{rollup}.{number}", 0 if own else len(requests), key, one))
    return lines


def _key(row: Row) -> Key:
    values = row._asdict()
    values["at"] = row.at // QUARTER_S * QUARTER_S
    values["attempt"] = min(row.attempt, 1)
    values["difficulty"] = None if row.difficulty is None else round(row.difficulty, 1)
    tokens = any(values[name] for name in TOKENS)
    return (*(values[name] for name in _KEY), *(values[name] is None for name in _MONEY), tokens)


def _line(number: int, request_id: str, requests: int, key: Key, sums: _Sum) -> tuple[Any, ...]:
    values = {"number": number, "request_id": request_id, "requests": requests, **dict(zip(_KEY, key, strict=False))}
    for name in _SUMMED:
        values[name] = sums.get(name, None if name in _MONEY else 0)
    return tuple(values[column.name] for column in ledger_sums.columns if column.name != "rollup")
