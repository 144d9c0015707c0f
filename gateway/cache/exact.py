"""Which answers exist, as the index log tells it: by digest, bounded per team, forgotten by flush or age."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gateway.cache.entry import Entry, Flush

_FLUSHES = 1000
"""Flushes remembered, so that an answer on its way meanwhile does not come back."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What one team may keep; beyond it the oldest goes."""

    entries: int = 20_000
    bytes: int = 256 * 2**20


class _Shelf:
    """One team's entries, oldest first."""

    __slots__ = ("bytes", "entries")

    def __init__(self) -> None:
        self.entries: OrderedDict[bytes, Entry] = OrderedDict()
        self.bytes = 0


class Known:
    """Every worker applies the same log in the same order, so all keep and evict the same entries."""

    def __init__(self, quota: Quota, on_gone: Callable[[Entry], None]) -> None:
        """`on_gone(entry)` for every entry that leaves, for whatever reason."""
        self._quota = quota
        self._on_gone = on_gone
        self._shelves: dict[str, _Shelf] = {}
        self._teams: dict[bytes, str] = {}
        self._flushes: deque[Flush] = deque(maxlen=_FLUSHES)
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._teams)

    @property
    def size(self) -> int:
        """Bytes of all answers known."""
        return sum(shelf.bytes for shelf in self._shelves.values())

    def get(self, digest: bytes, now: float) -> Entry | None:
        team = self._teams.get(digest)
        if team is None:
            return None
        entry = self._shelves[team].entries[digest]
        if entry.expires_at <= now:
            self.remove(digest)
            return None
        return entry

    def put(self, entry: Entry, now: float) -> list[Entry]:
        """The entries that had to go for it, oldest first; an entry that a flush covers is not taken."""
        if entry.expires_at <= now or any(flush.covers(entry) for flush in self._flushes):
            return []
        self.remove(entry.digest)
        shelf = self._shelves.setdefault(entry.team, _Shelf())
        shelf.entries[entry.digest] = entry
        shelf.bytes += entry.size
        self._teams[entry.digest] = entry.team
        gone = []
        while len(shelf.entries) > self._quota.entries or shelf.bytes > self._quota.bytes:
            oldest = next(iter(shelf.entries.values()))
            self.remove(oldest.digest)
            self.evicted += 1
            gone.append(oldest)
        return gone

    def remove(self, digest: bytes) -> None:
        team = self._teams.pop(digest, None)
        if team is not None:
            shelf = self._shelves[team]
            entry = shelf.entries.pop(digest)
            shelf.bytes -= entry.size
            if not shelf.entries:
                del self._shelves[team]
            self._on_gone(entry)

    def flush(self, flush: Flush) -> list[Entry]:
        """Forget what it covers, now and when it arrives late."""
        self._flushes.append(flush)
        gone = list(self.covered(flush))
        for entry in gone:
            self.remove(entry.digest)
        return gone

    def covered(self, flush: Flush) -> Iterator[Entry]:
        shelf = self._shelves.get(flush.team)
        return (entry for entry in (shelf.entries.values() if shelf else ()) if flush.covers(entry))

    def expire(self, now: float) -> None:
        """Forget the oldest entries of each team that have had their time."""
        for team in list(self._shelves):
            while shelf := self._shelves.get(team):
                oldest = next(iter(shelf.entries.values()))
                if oldest.expires_at > now:
                    break
                self.remove(oldest.digest)

    def clear(self) -> None:
        for digest in list(self._teams):
            self.remove(digest)
        self._flushes.clear()
