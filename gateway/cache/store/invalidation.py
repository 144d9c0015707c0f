"""Invalidates stored answers. Flushes answers, and deletes answers that clients reported as wrong."""

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
"""Number of recent cache hits that clients can report as wrong. A hit is named by the id of its request."""


class Invalidation:
    """Removes answers in this worker and, through the index log, in all other workers."""

    def __init__(
        self,
        log: IndexLog,
        exact: ExactIndex,
        bodies: Bodies,
        write_behind: WriteBehind,
        flushed: Callable[[Flush], None],
    ) -> None:
        """`flushed` is called for every flush, also for one that another worker has requested."""
        self._flushed = flushed
        self._log, self._exact, self._bodies, self._write_behind = log, exact, bodies, write_behind
        self._given: OrderedDict[str, tuple[str, bytes]] = OrderedDict()
        self._counts = {"flushed": 0, "called_wrong": 0}

    def remember(self, request_id: str, team: str, digest: bytes) -> None:
        """Remember that the request with this id got the stored answer with this digest."""
        self._given[request_id] = team, digest
        if len(self._given) > REMEMBERED:
            self._given.popitem(last=False)

    async def flush(self, flush: Flush, *, dry_run: bool) -> list[Entry]:
        """Remove the answers that `flush` covers, in every worker, and return their entries. `dry_run`: return the
        entries, but remove nothing.

        Raises StateUnavailable.
        """
        covered = list(self._exact.covered(flush))
        if not dry_run:
            await self._log.append(encode_flush(flush))
            late = self._exact.flush(flush)  # also contains answers that were stored after the call of `covered` above
            await self._bodies.delete({entry.digest: entry for entry in [*covered, *late]}.values())
            self._flushed(flush)
            self._counts["flushed"] += len(covered)
        return covered

    async def wrong(self, request_id: str, team: str) -> None:
        """Remove a wrong stored answer from all workers. `request_id`: id of a request of `team` that got this answer.
        Raises StateUnavailable."""
        wrong = Wrong(request_id, team)
        if not self._evict(wrong):
            await self._log.append(encode_wrong(wrong))

    def _evict(self, wrong: Wrong) -> bool:
        """Remove the answer if this worker served the hit. Returns whether this worker served it."""
        team, digest = self._given.get(wrong.request_id, ("", b""))
        if not digest or team != wrong.team:
            return False
        self._counts["called_wrong"] += 1
        if (entry := self._exact.get(digest, time.time())) is not None:
            self._exact.remove(digest)
            self._write_behind.discard([entry])
        return True

    def apply(self, change: Flush | Gone | Wrong) -> None:
        """Apply a change that another worker has announced."""
        if isinstance(change, Flush):
            self._exact.flush(change)
            self._flushed(change)
        elif isinstance(change, Wrong):
            self._evict(change)
        else:
            for digest, place in change.entries:
                entry = self._exact.get(digest, 0.0)
                if entry is not None and entry.place == place:
                    self._exact.remove(digest)

    def stats(self) -> dict[str, int | float | str]:
        return dict(self._counts)
