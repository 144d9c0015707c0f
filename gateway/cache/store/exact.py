"""The exact index, built from the index log: by digest, with quotas per team, flush, expiry and eviction."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from gateway.cache.entry import Entry, Flush

_FLUSHES = 1000
"""Number of flushes remembered, so that an answer that was asked for before a flush is not stored after it."""
_COMPARED = 16
"""Number of least-recently-used entries among which the one that saves least per byte is evicted."""


class Quota(NamedTuple):
    """Most that one team may store; beyond it, answers are evicted."""

    entries: int = 20_000
    bytes: int = 256 * 2**20


class _TeamEntries:
    """One team's entries, least recently used first."""

    __slots__ = ("bytes", "entries")

    def __init__(self) -> None:
        self.entries: OrderedDict[bytes, Entry] = OrderedDict()
        self.bytes = 0


class ExactIndex:
    """The entries that this worker knows, by digest.

    The worker that stores an answer decides which entries are evicted for it, and announces them: workers see
    different requests, so each would choose other entries.
    """

    def __init__(self, quota: Quota, on_gone: Callable[[Entry], None]) -> None:
        """`quota`: default quota of a team, and the upper limit of any. `on_gone(entry)` is called for every entry that
        is removed or replaced."""
        self._quota = quota
        self._on_gone = on_gone
        self._by_team: dict[str, _TeamEntries] = {}
        self._teams: dict[bytes, str] = {}
        self._flushes: deque[Flush] = deque(maxlen=_FLUSHES)
        self._flushed_until = float("-inf")
        """Unix seconds. No remembered flush covers an answer that was asked for later."""
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._teams)

    def entries(self) -> Iterator[Entry]:
        """All entries. The iterator is valid until the next change."""
        return (entry for of_team in self._by_team.values() for entry in of_team.entries.values())

    @property
    def size(self) -> int:
        """Bytes of all answers in the index."""
        return sum(of_team.bytes for of_team in self._by_team.values())

    def get(self, digest: bytes, now: float) -> Entry | None:
        """The entry, unless it has expired at `now` (Unix seconds); an expired one is removed."""
        team = self._teams.get(digest)
        if team is None:
            return None
        entry = self._by_team[team].entries[digest]
        if entry.expires_at <= now:
            self.remove(digest)
            return None
        return entry

    def has(self, digest: bytes) -> bool:
        """Is there an entry? An expired one counts until it is removed."""
        return digest in self._teams

    def touch(self, digest: bytes) -> None:
        """Mark the entry as most recently used."""
        if (team := self._teams.get(digest)) is not None:
            self._by_team[team].entries.move_to_end(digest)

    def put(self, entry: Entry, now: float, quota: Quota | None = None) -> list[Entry] | None:
        """Add an entry. Returns the entries that were evicted for it and the one that it replaced.

        None: not added, because it has expired at `now` (Unix seconds) or a flush covers it. `quota`: its team's.
        """
        late = entry.asked_at <= self._flushed_until
        if entry.expires_at <= now or (late and any(flush.covers(entry) for flush in self._flushes)):
            return None
        gone = []
        if entry.digest in self._teams:
            gone.append(self._remove(entry.digest))
        of_team = self._by_team.get(entry.team)
        if of_team is None:
            of_team = self._by_team[entry.team] = _TeamEntries()
        of_team.entries[entry.digest] = entry
        of_team.bytes += entry.size
        self._teams[entry.digest] = entry.team
        quota = quota or self._quota
        entries, size = min(quota.entries, self._quota.entries), min(quota.bytes, self._quota.bytes)
        while len(of_team.entries) > entries or of_team.bytes > size:
            gone.append(self._remove(_least(of_team.entries)))
            self.evicted += 1
        return gone

    def replace(self, entry: Entry) -> None:
        """Replace an entry of the index by one of the same answer with its question and vector."""
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
        """Remove the entries that `flush` covers, and refuse them when they arrive later. Returns those removed."""
        self._flushes.append(flush)
        self._flushed_until = max(self._flushed_until, flush.before)
        gone = list(self.covered(flush))
        for entry in gone:
            self.remove(entry.digest)
        return gone

    def covered(self, flush: Flush) -> Iterator[Entry]:
        """The entries that `flush` covers. The iterator is valid until the next change."""
        of_team = self._by_team.get(flush.team)
        among = self.entries() if not flush.team else (of_team.entries.values() if of_team else ())
        return (entry for entry in among if flush.covers(entry))

    def expire(self, now: float) -> None:
        """Remove expired entries of each team, from the least recently used one to the first that has not expired."""
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
    """Digest of the entry that saves least per byte, of the least recently used ones; not the newest of several."""
    oldest = list(islice(entries.values(), min(_COMPARED, max(1, len(entries) - 1))))
    worths = [entry.worth_pico / (entry.size or 1) for entry in oldest]
    return oldest[worths.index(min(worths))].digest
