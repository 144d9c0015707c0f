"""The exact index, built from the index log: by digest, with quotas per team, flush, expiry and eviction."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from gateway.cache.entry import Entry, Flush

_FLUSHES = 1000
"""Flushes remembered, so that an answer on its way meanwhile does not come back."""


_COMPARED = 16
"""Of this many least-recently-used entries, the one that saves least for its memory is evicted."""


class Quota(NamedTuple):
    """What one team may keep; beyond it answers go."""

    entries: int = 20_000
    bytes: int = 256 * 2**20


class _Shelf:
    """One team's entries, those least lately asked for first."""

    __slots__ = ("bytes", "entries")

    def __init__(self) -> None:
        self.entries: OrderedDict[bytes, Entry] = OrderedDict()
        self.bytes = 0


class ExactIndex:
    """Who stores an answer decides what has to go for it, and tells: what is asked for most each worker sees for
    itself, so two would not agree."""

    def __init__(self, quota: Quota, on_gone: Callable[[Entry], None]) -> None:
        """`quota`: of a team that none is told for, and the most of any. `on_gone(entry)` for every entry that leaves,
        for whatever reason."""
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

    def has(self, digest: bytes) -> bool:
        """Also of what has expired and was not looked for since."""
        return digest in self._teams

    def touch(self, digest: bytes) -> None:
        """It was asked for."""
        if (team := self._teams.get(digest)) is not None:
            self._shelves[team].entries.move_to_end(digest)

    def put(self, entry: Entry, now: float, quota: Quota | None = None) -> list[Entry] | None:
        """What had to go for it, what it replaces included; None: it is not taken, for it has had its time or a flush
        covers it. `quota`: its team's."""
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
        quota = quota or self._quota
        entries, size = min(quota.entries, self._quota.entries), min(quota.bytes, self._quota.bytes)
        while len(shelf.entries) > entries or shelf.bytes > size:
            gone.append(self._remove(_least(shelf.entries)))
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
        among = self.entries() if not flush.team else (shelf.entries.values() if shelf else ())
        return (entry for entry in among if flush.covers(entry))

    def expire(self, now: float) -> None:
        """Forget those that have had their time, from those least lately asked for up to the first that has not."""
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


def _least(entries: OrderedDict[bytes, Entry]) -> bytes:
    """The one that saves least per byte among those least lately asked for, and never the newest beside others."""
    oldest = list(islice(entries.values(), min(_COMPARED, max(1, len(entries) - 1))))
    worths = [entry.worth_pico / (entry.size or 1) for entry in oldest]
    return oldest[worths.index(min(worths))].digest
