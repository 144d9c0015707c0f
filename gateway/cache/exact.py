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
        self._flushed_until = float("-inf")
        """What was asked for later is covered by none of them."""
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._teams)

    def entries(self) -> Iterator[Entry]:
        """All of them; valid until the next change."""
        return (entry for shelf in self._shelves.values() for entry in shelf.entries.values())

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

    def put(self, entry: Entry, now: float) -> list[Entry] | None:
        """What had to go for it, oldest first, what it replaces included; None: it is not taken, for it has had its
        time or a flush covers it."""
        late = entry.asked_at <= self._flushed_until
        if entry.expires_at <= now or (late and any(flush.covers(entry) for flush in self._flushes)):
            return None
        gone = []
        if entry.digest in self._teams:
            gone.append(self._remove(entry.digest))
        shelf = self._shelves.get(entry.team)
        if shelf is None:
            shelf = self._shelves[entry.team] = _Shelf()
        shelf.entries[entry.digest] = entry
        shelf.bytes += entry.size
        self._teams[entry.digest] = entry.team
        while len(shelf.entries) > self._quota.entries or shelf.bytes > self._quota.bytes:
            gone.append(self._remove(next(iter(shelf.entries))))
            self.evicted += 1
        return gone

    def replace(self, entry: Entry) -> None:
        """More is known of the answer that is known under this digest."""
        self._shelves[entry.team].entries[entry.digest] = entry

    def remove(self, digest: bytes) -> None:
        if digest in self._teams:
            self._remove(digest)

    def _remove(self, digest: bytes) -> Entry:
        team = self._teams.pop(digest)
        shelf = self._shelves[team]
        entry = shelf.entries.pop(digest)
        shelf.bytes -= entry.size
        if not shelf.entries:
            del self._shelves[team]
        self._on_gone(entry)
        return entry

    def flush(self, flush: Flush) -> list[Entry]:
        """Forget what it covers, now and when it arrives late."""
        self._flushes.append(flush)
        self._flushed_until = max(self._flushed_until, flush.before)
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
        self._flushed_until = float("-inf")
