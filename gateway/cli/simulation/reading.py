"""Reads the calls of a log file or of a folder of transcripts. The first row shows what kind of log it is."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from gateway.cli.simulation import chat_log, claude_code, langfuse, litellm_log
from gateway.cli.simulation.call import LogError, LoggedCall, Object

_ROWS: dict[str, tuple[Callable[[Object], bool], Callable[[Object], LoggedCall | None]]] = {
    "litellm": (litellm_log.is_row, litellm_log.read),
    "langfuse": (langfuse.is_row, langfuse.read),
    "chat": (chat_log.is_row, chat_log.read),
}
KINDS = (*_ROWS, "claude-code")
_WHOLE = re.compile(rb'\s*(\[|\{\s*"data"\s*:\s*\[)')
"""The beginning of a file that is one JSON value: an array, or a page of an API with the array in `data`."""


def read_calls(path: Path, kind: str | None = None) -> tuple[str, list[LoggedCall]]:
    """Read a log. Returns its kind and its calls, oldest first. `path`: a file (JSON lines, a JSON array, a page of an
    API, CSV), or a folder with transcripts. Raises OSError, and LogError with file, row and remedy."""
    files = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise LogError(f"{path}: there are no *.jsonl files in this folder")
    found: list[LoggedCall] = []
    for file in files:
        rows = _numbered(file)
        first = next(rows, None)
        if first is None:
            continue
        kind = kind or _kind(file, first)
        found += _calls(kind, file, chain([first], rows))
    if kind is None:
        raise LogError(f"{path}: the log is empty")
    return kind, sorted(found, key=lambda call: call.at)


def _kind(file: Path, first: tuple[int, Object]) -> str:
    _, row = first
    if claude_code.is_row(row):
        return "claude-code"
    for name, (matches, _) in _ROWS.items():
        if matches(row):
            return name
    raise LogError(
        f"{file}: row 1 is of no known log: {', '.join(list(row)[:6]) or 'no fields'}. Known are {', '.join(KINDS)}; "
        "name one with --format."
    )


def _calls(kind: str, file: Path, rows: Iterable[tuple[int, Object]]) -> Iterator[LoggedCall]:
    number = 0

    def passing() -> Iterator[Object]:
        nonlocal number
        for at, row in rows:
            number = at
            yield row

    try:
        if kind == "claude-code":
            yield from claude_code.read(passing())
            return
        _, read = _ROWS[kind]
        yield from filter(None, map(read, passing()))
    except LogError as error:
        raise LogError(f"{file}: row {number}: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise LogError(f"{file}: row {number} is no row of a {kind} log: {error!r}") from error


def _numbered(file: Path) -> Iterator[tuple[int, Object]]:
    """Read the rows with their numbers: (number, fields). The last line of a JSON-lines file may be incomplete, because
    a program may still be writing it."""
    if file.suffix == ".csv":
        yield from _table(file)
        return
    with file.open("rb") as lines:
        whole = _WHOLE.match(lines.read(64)) is not None
        lines.seek(0)
        yield from _array(file, lines.read()) if whole else _lines(file, lines)


def _table(file: Path) -> Iterator[tuple[int, Object]]:
    """Read the rows of a CSV file. Values beyond the columns of the first line are stored under an empty name."""
    csv.field_size_limit(sys.maxsize)
    number = 0
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            for number, row in enumerate(csv.DictReader(lines, restkey=""), 1):
                yield number, row
    except (UnicodeDecodeError, csv.Error) as error:
        raise LogError(f"{file}: after row {number}: no CSV in UTF-8: {error}") from error


def _array(file: Path, data: bytes) -> Iterator[tuple[int, Object]]:
    try:
        rows = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise LogError(f"{file}: line {error.lineno}: {error.msg}") from error
    for number, row in enumerate(rows["data"] if isinstance(rows, dict) else rows, 1):
        yield number, _object(file, number, row)


def _lines(file: Path, lines: Iterable[bytes]) -> Iterator[tuple[int, Object]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            if not line.endswith(b"\n"):
                return
            raise LogError(f"{file}: line {number} is not JSON: {error.msg}") from error
        yield number, _object(file, number, row)


def _object(file: Path, number: int, row: Any) -> Object:
    if not isinstance(row, dict):
        raise LogError(f"{file}: row {number} is no JSON object")
    return row
