"""Invalidates stored answers: flushes, and answers reported as wrong."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from gateway.cache.entry import Entry, Flush, Gone, Wrong, encode_flush, encode_wrong
from gateway.cache.store.bodies import Bodies
from gateway.cache.store.exact import ExactIndex
from gateway.cache.store.write_behind import WriteBehind
from gateway.state.redis.log import IndexLog

REMEMBERED = 4096
"""Of the answers that were given again, so many can still be called wrong by the request that got them."""


class Invalidation:
    """What one worker forgets, all do: it goes over the index log."""

    def __init__(
        self,
        log: IndexLog,
        known: ExactIndex,
        bodies: Bodies,
        write_behind: WriteBehind,
        flushed: Callable[[Flush], None],
    ) -> None:
        """`flushed`: called for every flush."""
        self._flushed = flushed
        self._log, self._known, self._bodies, self._write_behind = log, known, bodies, write_behind
        self._given: OrderedDict[str, tuple[str, bytes]] = OrderedDict()
        self._counts = {"flushed": 0, "called_wrong": 0}

    def given(self, request_id: str, team: str, digest: bytes) -> None:
        """The answer that this request got."""
        self._given[request_id] = team, digest
        if len(self._given) > REMEMBERED:
            self._given.popitem(last=False)

    async def flush(self, flush: Flush, *, dry_run: bool) -> list[Entry]:
        """Forget what it covers, in every worker; which answers those are. Raises StateUnavailable."""
        covered = list(self._known.covered(flush))
        if not dry_run:
            await self._log.append(encode_flush(flush))
            late = self._known.flush(flush)  # some may have come meanwhile
            await self._bodies.delete({entry.digest: entry for entry in [*covered, *late]}.values())
            self._flushed(flush)
            self._counts["flushed"] += len(covered)
        return covered

    async def wrong(self, request_id: str, team: str) -> None:
        """Forget the answer that this request got, which any worker may have given. Raises StateUnavailable."""
        wrong = Wrong(request_id, team)
        if not self._evict(wrong):
            await self._log.append(encode_wrong(wrong))

    def _evict(self, wrong: Wrong) -> bool:
        """Was it given here?"""
        team, digest = self._given.get(wrong.request_id, ("", b""))
        if not digest or team != wrong.team:
            return False
        self._counts["called_wrong"] += 1
        if (entry := self._known.get(digest, time.time())) is not None:
            self._known.remove(digest)
            self._write_behind.discard([entry])
        return True

    def apply(self, change: Flush | Gone | Wrong) -> None:
        """Apply the message of another worker."""
        if isinstance(change, Flush):
            self._known.flush(change)
            self._flushed(change)
        elif isinstance(change, Wrong):
            self._evict(change)
        else:
            for digest, place in change.entries:
                entry = self._known.get(digest, 0.0)
                if entry is not None and entry.place == place:
                    self._known.remove(digest)

    def stats(self) -> dict[str, int | float | str]:
        return dict(self._counts)
