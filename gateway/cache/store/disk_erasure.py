"""Erases flushed content from the disk: from the index log, and from the append-only file of the state server."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from gateway.cache.entry import Batch, Flush, decode, encode
from gateway.errors import StateUnavailable
from gateway.state.redis.connection import State
from gateway.state.redis.log import IndexLog, Replacement

log = logging.getLogger(__name__)

_MOST_DUE = 1000


class DiskErasure:
    """Erases flushed content from the disk. One worker of each host uses this class."""

    def __init__(self, state: State, log: IndexLog) -> None:
        self._state, self._log = state, log
        self._due: list[Flush] = []
        self._rewrite = False
        self._counts = {"scrubbed": 0}

    def note(self, flush: Flush) -> None:
        """Register `flush`. The next call of `tidy` erases the answers that `flush` covers. If too many flushes are
        registered, one flush of all teams replaces them."""
        if len(self._due) >= _MOST_DUE:
            self._due = [Flush("", max(each.before for each in self._due))]
        self._due.append(flush)

    async def tidy(self) -> bool:
        """Erase the registered content. Returns whether anything was erased. If erasing fails, the next call tries
        again."""
        if not (self._due or self._rewrite):
            return False
        try:
            if self._due:
                due = list(self._due)
                self._counts["scrubbed"] += await self._log.rewrite(lambda fields: _without(due, fields))
                del self._due[: len(due)]
                self._rewrite = self._state.own  # the operator must rewrite a server that the gateway did not start
            if self._rewrite:
                await self._state.call("BGREWRITEAOF")
                self._rewrite = False
        except (
            StateUnavailable
        ) as error:  # also raised while an earlier rewrite runs; its result may contain the deleted content
            log.debug("flushed answers stay in the state server's file for now: %s", error)
            return False
        return True

    def stats(self) -> dict[str, int | float | str]:
        return dict(self._counts)


def _without(flushes: list[Flush], fields: Mapping[bytes, bytes]) -> Replacement | None:
    """The new content of an index log entry, without the answers that `flushes` cover. None if the entry need not
    change."""
    if fields.get(b"op") != b"put":
        return None
    batch = decode(fields)
    assert isinstance(batch, Batch)
    kept = [entry for entry in batch.entries if not any(flush.covers(entry) for flush in flushes)]
    if len(kept) == len(batch.entries):
        return None
    return Replacement(encode(Batch(batch.name, batch.place, batch.epoch, kept)) if kept else None, len(kept))
