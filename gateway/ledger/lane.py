"""One life of one worker, read back from its journal: rows that closed, attempts still open, where to resume."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import orjson

from gateway.ledger import segments
from gateway.ledger.rows import FIELDS, LEAST, Mark, Row, Values, orphan
from gateway.ledger.segments import Segment
from gateway.ledger.slots import unpacked

log = logging.getLogger(__name__)

Place = tuple[int, int]
"""Segment number and byte in it."""

_OPEN = b'{"open":["'
_CLOSE = b'{"close":'


class Lane:
    """Reads on from `place`. Reading twice is harmless: a row is known by its id."""

    def __init__(self, name: str, place: Place = (0, 0)) -> None:
        self.name, self.place = name, place
        self.damaged = 0
        # In the order in which they opened, as they stand in the journal: only a dead worker's are looked into.
        self.open: dict[str, tuple[Place, bytes]] = {}
        self._marks: dict[str, Mark] = {}
        self._fields: dict[int, list[str]] = {}

    @property
    def resume(self) -> Place:
        """From here on everything must be read again after a restart: the oldest open attempt, else the end."""
        for place, _ in self.open.values():
            return place
        return self.place

    def read(self, found: list[Segment]) -> list[Values]:
        """Rows closed in the next piece of the journal; `place` stays where it is when there is no more.

        Raises OSError.
        """
        for segment in found:
            number, position = self.place
            if segment.number < number:
                continue
            start = position if segment.number == number else 0
            # Asked before the read: a segment is left only when nothing can follow what was read of it.
            whole = segment is not found[-1] and segments.released(segment)
            lines, end = segments.read(segment, start)
            rows = self._take(segment, lines)
            self.place = (segment.number, end)
            if lines:
                return rows
            if not whole:
                break
        return []

    def orphans(self, progress: Sequence[int] | None = None) -> list[Row]:
        """The rows of what is still open, for a worker that is dead. `progress`: the words in its slots, if it left
        any that can be believed."""
        found = []
        for id, ((number, _), payload) in self.open.items():
            entry = orjson.loads(payload)
            opened = dict(zip(self._fields[number], entry["open"], strict=False)) | entry.get("more", {})
            mark = self._marks.get(id)
            slot = entry.get("slot")
            if progress is not None and slot is not None and progress[slot]:
                mark = Mark(mark.at if mark else None, *unpacked(progress[slot]))
            found.append(orphan(_ours(opened), entry, mark))
        return found

    def _take(self, segment: Segment, lines: list[tuple[int, bytes | None]]) -> list[Values]:
        fields = self._fields.get(segment.number)
        if fields is None:
            fields = segments.fields(segment) or FIELDS
            if fields == FIELDS:
                fields = FIELDS  # the same object, which is quicker to recognise in every line
            self._fields[segment.number] = fields
        rows = []
        for position, payload in lines:
            if payload is None:
                self.damaged += 1
                log.warning("%s: the line at byte %d is damaged", segment.path, position)
                continue
            try:
                if row := self._understand(payload, fields, (segment.number, position)):
                    rows.append(row)
            except (KeyError, TypeError, ValueError) as error:
                # Whole, but not what any version of ours writes: the log is the last to have it.
                self.damaged += 1
                log.error("%s: the line at byte %d says nothing (%r): %r", segment.path, position, error, payload)
        return rows

    def _understand(self, payload: bytes, fields: list[str], place: Place) -> Values | None:
        if payload.startswith(_OPEN):
            id = payload[len(_OPEN) : payload.index(b'"', len(_OPEN))].decode()
            self.open[id] = place, payload
            return None
        entry = orjson.loads(payload)
        if payload.startswith(_CLOSE):
            return self._close(fields, tuple(entry["close"]))
        if "mark" in entry:
            self._mark(entry["mark"], entry["grown"])
        return None

    def _close(self, fields: list[str], row: Values) -> Values:
        if fields is not FIELDS or not LEAST <= len(row) <= len(fields):
            row = Row(**_ours(dict(zip(fields, row, strict=False))))
        id = row[0]
        self.open.pop(id, None)
        self._marks.pop(id, None)
        return row

    def _mark(self, at: float, grown: list[tuple[str, int, int]]) -> None:
        for id, chunks, output_bytes in grown:
            if id in self.open:
                self._marks[id] = Mark(at, chunks, output_bytes)


def _ours(row: dict[str, Any]) -> dict[str, Any]:
    """Of a row that another version wrote, the fields that this one knows."""
    return {name: row[name] for name in FIELDS if name in row}
