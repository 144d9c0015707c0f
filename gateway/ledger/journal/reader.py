"""Reads the journal of one worker process: the rows of ended attempts, and the attempts that are still open."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import orjson

from gateway.ledger.journal import segments
from gateway.ledger.journal.orphan import BackendPace, Mark, orphan
from gateway.ledger.journal.segments import Segment
from gateway.ledger.journal.slots import progress_of
from gateway.ledger.rows import FIELDS, LEAST, TOKENS, Row, Values, with_class

log = logging.getLogger(__name__)

Place = tuple[int, int]
"""(Segment number, byte offset in the segment)."""

MARK_S = 0.5
"""Seconds between two progress records. On a busy event loop the time is longer, but less than a second."""
_OPEN = b'{"open":["'
_CLOSE = b'{"close":'


class JournalReader:
    """Reads the journal of one worker process from the position `place` on. The same part may be read twice without
    harm."""

    def __init__(self, name: str, place: Place = (0, 0)) -> None:
        self.name, self.place = name, place
        self.damaged = 0
        # Undecoded lines by attempt, in the order of opening. They are decoded only if the worker dies.
        self.open: dict[str, tuple[Place, bytes]] = {}
        self._marks: dict[str, Mark] = {}
        self._reported: dict[str, dict[str, int]] = {}
        self._known: dict[str, BackendPace] = {}
        """Backend name → the backend's speed."""
        self._marked_at = 0.0
        """Unix time at which the worker last recorded the progress of its streams."""
        self._fields: dict[int, list[str]] = {}

    @property
    def resume(self) -> Place:
        """The position from which the journal must be read after a restart: the beginning of the oldest open attempt.
        If no attempt is open, the end of the part that was read."""
        for place, _ in self.open.values():
            return place
        return self.place

    def read(self, found: list[Segment]) -> list[Values]:
        """Read the next piece of the segments `found`. Returns the rows of the attempts that end in this piece. If
        there is nothing to read, `place` does not change. Raises OSError."""
        for segment in found:
            number, position = self.place
            if segment.number < number:
                continue
            start = position if segment.number == number else 0
            # This is tested before the read: later segments are read only if this segment can no longer grow.
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
        """Build the rows of the attempts that were open when the worker died. `progress`: the contents of all its
        progress slots, as returned by `slots.read`."""
        found, left = [], list[tuple[str, dict[str, Any], dict[str, Any]]]()
        for id, ((number, _), payload) in self.open.items():
            entry = orjson.loads(payload)
            opened = dict(zip(self._fields[number], entry["open"], strict=False)) | entry.get("more", {})
            if "class" in entry:
                opened["traffic_class"] = entry["class"]
            left.append((id, entry, opened))
        # The worker died after it opened the latest of these attempts, and before its next mark.
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
        """Process the given lines, which begin at byte `position` of `segment`. Returns the rows of the attempts that
        end in these lines."""
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
                    rows.append(self._close(fields, orjson.loads(payload)))
                else:
                    self._mark(orjson.loads(payload))
            except (KeyError, TypeError, ValueError) as error:
                # The checksum is right, but no version writes such a line. It is only logged.
                self.damaged += 1
                log.error("%s: the line at byte %d is unknown (%r): %r", segment.path, position, error, payload)
            position += len(line) + 1
        return rows

    def _fields_of(self, segment: Segment) -> list[str]:
        fields = self._fields.get(segment.number)
        if fields is None:
            fields = segments.fields(segment) or FIELDS
            if fields == FIELDS:
                fields = FIELDS  # the same object, so that `_close` can compare by identity
            self._fields[segment.number] = fields
        return fields

    def _close(self, fields: list[str], entry: dict[str, Any]) -> Values:
        values = entry["close"]
        usual = fields is FIELDS and LEAST <= len(values) <= len(fields)
        row = tuple(values) if usual else Row(**_ours(dict(zip(fields, values, strict=False))))
        id = row[0]
        self.open.pop(id, None)
        if self._marks:
            self._marks.pop(id, None)
            self._reported.pop(id, None)
        return with_class(row, traffic_class) if (traffic_class := entry.get("class")) else row

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
    """The fields of `row` that this version knows. A row written by another version may have other fields."""
    return {name: row[name] for name in FIELDS if name in row}
