"""The exact index: entries by digest, built from the index log, with quotas per team, flush, expiry and eviction."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from gateway.cache.entry import Entry, Flush

_FLUSHES = 1000
"""Number of flushes remembered, so that an answer requested before a flush is not stored after it."""
_COMPARED = 16
"""Number of least-recently-used entries that are compared for eviction. The one that saves least per byte is evicted.
"""


class Quota(NamedTuple):
    """Maximum that one team may store. Above it, answers are evicted."""

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

    The worker that stores an answer decides which entries are evicted for it, and announces them. If each worker
    decided for itself, they would evict different entries, because they see different requests.
    """

    def __init__(self, quota: Quota, on_gone: Callable[[Entry], None]) -> None:
        """`quota`: the default quota of a team, which is also the maximum. `on_gone(entry)` is called for each entry
        that is removed or replaced."""
        self._quota = quota
        self._on_gone = on_gone
        self._by_team: dict[str, _TeamEntries] = {}
        self._teams: dict[bytes, str] = {}
        self._flushes: deque[Flush] = deque(maxlen=_FLUSHES)
        self._flushed_until = float("-inf")
        """Unix time. No remembered flush covers an answer that was requested later."""
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
        """Whether there is an entry. An expired entry counts until it is removed."""
        return digest in self._teams

    def touch(self, digest: bytes) -> None:
        """Mark the entry as most recently used."""
        if (team := self._teams.get(digest)) is not None:
            self._by_team[team].entries.move_to_end(digest)

    def put(self, entry: Entry, now: float, quota: Quota | None = None) -> list[Entry] | None:
        """Add an entry. Returns the entries that were evicted for it and the one that it replaced.

        None: the entry was not added, because it has expired at `now` (Unix seconds) or a flush covers it. `quota`: the
        team's.
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
        """Replace an entry by one of the same answer that also has its question and vector."""
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
        """Remove the entries that `flush` covers and return them. Entries that it covers and that arrive later are
        refused."""
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
        """Remove each team's expired entries, from the least recently used one up to the first that has not expired."""
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
    """Of the least recently used entries, the digest of the one that saves least per byte; never the newest, unless it
    is the only one."""
    oldest = list(islice(entries.values(), min(_COMPARED, max(1, len(entries) - 1))))
    worths = [entry.worth_pico / (entry.size or 1) for entry in oldest]
    return oldest[worths.index(min(worths))].digest
