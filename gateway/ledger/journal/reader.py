"""Reads back the journal of one worker process: closed rows, open attempts, position."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import orjson

from gateway.ledger.journal import segments
from gateway.ledger.journal.orphan import BackendPace, Mark, orphan
from gateway.ledger.journal.segments import Segment
from gateway.ledger.journal.slots import progress_of
from gateway.ledger.rows import FIELDS, LEAST, TOKENS, Row, Values

log = logging.getLogger(__name__)

Place = tuple[int, int]
"""Segment number and byte in it."""

MARK_S = 0.5
"""Pause between progress marks; with a busy loop they stay less than a second apart."""
_OPEN = b'{"open":["'
_CLOSE = b'{"close":'


class JournalReader:
    """Reads on from `place`. Reading twice is harmless: a row is known by its id."""

    def __init__(self, name: str, place: Place = (0, 0)) -> None:
        self.name, self.place = name, place
        self.damaged = 0
        # In the order in which they opened, as they stand in the journal: only a dead worker's are looked into.
        self.open: dict[str, tuple[Place, bytes]] = {}
        self._marks: dict[str, Mark] = {}
        self._reported: dict[str, dict[str, int]] = {}
        self._known: dict[str, BackendPace] = {}
        """How backends generate, by their names."""
        self._marked_at = 0.0
        """Unix seconds at which the worker last recorded the progress of its streams."""
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
            rows = self._take(segment, start, lines)
            self.place = (segment.number, end)
            if lines:
                return rows
            if not whole:
                break
        return []

    def orphans(self, progress: Sequence[int] | None = None) -> list[Row]:
        """The rows of what is still open, for a worker that is dead. `progress`: the words in its slots, if it left
        any that can be believed."""
        found, left = [], list[tuple[str, dict[str, Any], dict[str, Any]]]()
        for id, ((number, _), payload) in self.open.items():
            entry = orjson.loads(payload)
            left.append(
                (id, entry, dict(zip(self._fields[number], entry["open"], strict=False)) | entry.get("more", {}))
            )
        # It died at some time before it would have marked again, and after it opened the last of these.
        ended_at = max([self._marked_at + MARK_S / 2, *(opened["at"] for _, _, opened in left)])
        for id, entry, opened in left:
            mark = self._marks.get(id)
            slot = entry.get("slot")
            if progress is not None and slot is not None and (came := progress_of(progress, slot)):
                mark = Mark(mark.at if mark else None, *came)
            known = self._known.get(opened["backend"])
            found.append(orphan(_ours(opened), entry, mark, self._reported.get(id), known, ended_at))
        return found

    def _take(self, segment: Segment, position: int, lines: list[bytes]) -> list[Values]:
        """What follows `position`."""
        fields, rows = self._fields_of(segment), list[Values]()
        for line in lines:
            payload = segments.checked(line)
            try:
                if payload is None:
                    self.damaged += 1
                    log.warning("%s: the line at byte %d is damaged", segment.path, position)
                elif payload.startswith(_OPEN):
                    id = payload[len(_OPEN) : payload.index(b'"', len(_OPEN))].decode()
                    self.open[id] = (segment.number, position), payload
                elif payload.startswith(_CLOSE):
                    rows.append(self._close(fields, orjson.loads(payload)["close"]))
                else:
                    self._mark(orjson.loads(payload))
            except (KeyError, TypeError, ValueError) as error:
                # Whole, but not what any version of ours writes: the log is the last to have it.
                self.damaged += 1
                log.error("%s: the line at byte %d says nothing (%r): %r", segment.path, position, error, payload)
            position += len(line) + 1
        return rows

    def _fields_of(self, segment: Segment) -> list[str]:
        fields = self._fields.get(segment.number)
        if fields is None:
            fields = segments.fields(segment) or FIELDS
            if fields == FIELDS:
                fields = FIELDS  # the same object, which is quicker to recognise in every line
            self._fields[segment.number] = fields
        return fields

    def _close(self, fields: list[str], values: list[Any]) -> Values:
        usual = fields is FIELDS and LEAST <= len(values) <= len(fields)
        row = tuple(values) if usual else Row(**_ours(dict(zip(fields, values, strict=False))))
        id = row[0]
        self.open.pop(id, None)
        if self._marks:
            self._marks.pop(id, None)
            self._reported.pop(id, None)
        return row

    def _mark(self, entry: dict[str, Any]) -> None:
        if "mark" in entry:
            self._marked_at = entry["mark"]
            for name, known in entry.get("paces", {}).items():
                before, now = self._known.get(name), BackendPace(*known)
                self._known[name] = now if before is None else now.or_else(before)
            for id, chunks, output_bytes in entry["grown"]:
                if id in self.open:
                    self._marks[id] = Mark(entry["mark"], chunks, output_bytes)
            for id, classes in entry.get("reported", {}).items():
                if id in self.open:
                    self._reported[id] = {name: tokens for name, tokens in classes.items() if name in TOKENS and tokens}


def _ours(row: dict[str, Any]) -> dict[str, Any]:
    """Of a row written by another version, the fields that this version has."""
    return {name: row[name] for name in FIELDS if name in row}
