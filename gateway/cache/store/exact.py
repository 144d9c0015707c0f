"""The exact index: digest → entry. It is built from the index log.

It applies the quota of each team, flushes, expiry times and eviction.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from gateway.cache.entry import Entry, Flush

_FLUSHES = 1000
"""Number of flushes that are remembered. With them, an answer that was requested before a flush is not stored after the
flush."""
_COMPARED = 16
"""Number of entries that are compared when one must be evicted. They are the entries that were not used for the longest
time. Of these, the entry that saves least per byte is evicted."""


class Quota(NamedTuple):
    """The maximum that one team may store. If the maximum is exceeded, answers of the team are evicted."""

    entries: int = 20_000
    bytes: int = 256 * 2**20


class _TeamEntries:
    """The entries of one team. The entry that was not used for the longest time comes first."""

    __slots__ = ("bytes", "entries")

    def __init__(self) -> None:
        self.entries: OrderedDict[bytes, Entry] = OrderedDict()
        self.bytes = 0


class ExactIndex:
    """The entries that this worker knows, by digest. Only the worker that stores an answer selects the entries to
    evict."""

    def __init__(self, quota: Quota, on_gone: Callable[[Entry], None]) -> None:
        """`quota`: the quota of teams whose policy sets none, and the maximum for all teams. `on_gone(entry)` is
        called for each entry that is removed or replaced.
        """
        self._quota = quota
        self._on_gone = on_gone
        self._by_team: dict[str, _TeamEntries] = {}
        self._teams: dict[bytes, str] = {}
        self._flushes: deque[Flush] = deque(maxlen=_FLUSHES)
        self._flushed_until = float("-inf")
        """Unix time of the latest remembered flush. No flush covers an answer that was requested after this time."""
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._teams)

    def entries(self) -> Iterator[Entry]:
        """All entries. The iterator is valid until the next change of the index."""
        return (entry for of_team in self._by_team.values() for entry in of_team.entries.values())

    @property
    def size(self) -> int:
        """The number of bytes of all answers in the index."""
        return sum(of_team.bytes for of_team in self._by_team.values())

    def get(self, digest: bytes, now: float) -> Entry | None:
        """The entry of `digest`; None if there is none, or if it has expired at `now` (Unix seconds). An expired entry
        is removed."""
        team = self._teams.get(digest)
        if team is None:
            return None
        entry = self._by_team[team].entries[digest]
        if entry.expires_at <= now:
            self.remove(digest)
            return None
        return entry

    def has(self, digest: bytes) -> bool:
        """Whether the index has an entry for `digest`. Also True for an expired entry that was not yet removed."""
        return digest in self._teams

    def touch(self, digest: bytes) -> None:
        """Mark the entry of `digest` as the one that was used last."""
        if (team := self._teams.get(digest)) is not None:
            self._by_team[team].entries.move_to_end(digest)

    def put(
        self, entry: Entry, now: float, most_entries: int = sys.maxsize, most_bytes: int = sys.maxsize
    ) -> list[Entry] | None:
        """Add an entry, and return the entries evicted or replaced. None: not added, because it has expired at `now`
        (Unix seconds) or a flush covers it. `most_entries`, `most_bytes`: the team's quota, if lower than the default.
        """
        if entry.expires_at <= now:
            return None
        if entry.asked_at <= self._flushed_until and any(flush.covers(entry) for flush in self._flushes):
            return None
        digest, team, gone = entry.digest, entry.team, []
        if digest in self._teams:
            gone.append(self._remove(digest))
        of_team = self._by_team.get(team)
        if of_team is None:
            of_team = self._by_team[team] = _TeamEntries()
        of_team.entries[digest] = entry
        of_team.bytes += entry.size
        self._teams[digest] = team
        most_entries, most_bytes = min(most_entries, self._quota.entries), min(most_bytes, self._quota.bytes)
        while len(of_team.entries) > most_entries or of_team.bytes > most_bytes:
            gone.append(self._remove(_least(of_team.entries)))
            self.evicted += 1
        return gone

    def replace(self, entry: Entry) -> None:
        """Replace an entry by one that has the same answer and, in addition, the question and its vector."""
        self._by_team[entry.team].entries[entry.digest] = entry

    def remove(self, digest: bytes) -> None:
        if digest in self._teams:
            self._remove(digest)

    def _remove(self, digest: bytes) -> Entry:
        team = self._teams.pop(digest)
        of_team = self._by_team[team]
        entry = of_team.entries.pop(digest)
        of_team.bytes -= entry.size
        if not of_team.entries:
            del self._by_team[team]
        self._on_gone(entry)
        return entry

    def flush(self, flush: Flush) -> list[Entry]:
        """Remove and return the entries that `flush` covers. Covered entries that arrive later are not added."""
        self._flushes.append(flush)
        self._flushed_until = max(self._flushed_until, flush.before)
        gone = list(self.covered(flush))
        for entry in gone:
            self.remove(entry.digest)
        return gone

    def covered(self, flush: Flush) -> Iterator[Entry]:
        """The entries that `flush` covers, that is, the answers that it deletes. The iterator is valid until the next
        change of the index."""
        of_team = self._by_team.get(flush.team)
        among = self.entries() if not flush.team else (of_team.entries.values() if of_team else ())
        return (entry for entry in among if flush.covers(entry))

    def expire(self, now: float) -> None:
        """Remove expired entries. The entries of each team are checked from the least recently used one on, until a
        valid one is found.
        """
        for team in list(self._by_team):
            while of_team := self._by_team.get(team):
                oldest = next(iter(of_team.entries.values()))
                if oldest.expires_at > now:
                    break
                self.remove(oldest.digest)

    def clear(self) -> None:
        for digest in list(self._teams):
            self.remove(digest)
        self._flushes.clear()
        self._flushed_until = float("-inf")


def _least(entries: OrderedDict[bytes, Entry]) -> bytes:
    """The digest of the entry to evict. Of the least recently used entries, it is the one that saves the least money
    per byte. The newest entry is evicted only if it is the only one."""
    oldest = list(islice(entries.values(), min(_COMPARED, max(1, len(entries) - 1))))
    worths = [entry.worth_pico / (entry.size or 1) for entry in oldest]
    return oldest[worths.index(min(worths))].digest
