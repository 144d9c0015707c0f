"""Writes stored answers to the state server in the background, in batches."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from gateway.cache.entry import Batch, Entry, encode, encode_gone
from gateway.cache.store.bodies import Bodies, Stored
from gateway.errors import StateUnavailable
from gateway.runtime.tasks import Tasks
from gateway.state.redis.connection import State
from gateway.state.redis.log import IndexLog

log = logging.getLogger(__name__)

PERIOD_S = 0.1
_MOST_OWN = 10_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """The maximum number and the maximum bytes of answers that wait to be sent. While a maximum is reached, new
    answers are not stored.
    """

    answers: int = 4000
    bytes: int = 32 * 2**20
    batch_answers: int = 128
    batch_bytes: int = 2**20


@dataclass(slots=True)
class _Batch:
    """Answers with the same time to live. They are sent together."""

    place: str
    ttl_s: float
    epoch: str
    items: dict[bytes, tuple[Entry, Stored]] = field(default_factory=dict)
    bytes: int = 0
    sending: bool = False
    """Whether the batch is being sent. If so, an answer that is withdrawn now must also be deleted from the state
    server."""


class WriteBehind:
    """Keeps new answers in memory until they are sent to the state server. A batch that cannot be sent is dropped."""

    def __init__(
        self,
        state: State,
        log: IndexLog,
        bodies: Bodies,
        lost: Callable[[Iterable[Entry]], None],
        *,
        period_s: float = PERIOD_S,
        bounds: Bounds | None = None,
    ) -> None:
        """`lost(entries)` is called with the entries of a batch that could not be sent."""
        self._state, self._log, self._bodies, self._lost = state, log, bodies, lost
        self._period_s, self._bounds = period_s, bounds or Bounds()
        self._author = uuid.uuid4().hex
        self._made = 0
        self._batches: dict[str, _Batch] = {}
        """Place → batch, in the order in which the batches will be sent."""
        self._open: dict[float, _Batch] = {}
        """Time to live in seconds → the batch to which the next answer with this time to live is added."""
        self._with_vectors: list[Entry] = []
        """Entries that must be sent again, because their vectors were computed after the first sending."""
        self._to_delete: list[Entry] = []
        """Entries whose answers must be deleted from the state server."""
        self._own_names: dict[bytes, None] = {}
        """Names of the log entries that this worker has written. This worker need not apply these entries."""
        self._answers = self._bytes = 0
        self._wake = asyncio.Event()
        self._lock = asyncio.Lock()
        self._tasks = Tasks()
        self._counts = {"sent": 0, "batches": 0, "dropped": 0, "lost": 0}

    async def open(self) -> None:
        self._tasks.spawn(self._run(), "cache write-behind")

    async def aclose(self) -> None:
        """Drop everything that has not been sent. To send everything first, call `flush` before."""
        await self._tasks.aclose()

    # -- in memory ---------------------------------------------------------------------------------------------------

    def place(self, ttl_s: float) -> str | None:
        """The name of the bundle in which the next answer with this time to live is stored (`Entry.place`). None if too
        many answers are waiting."""
        bounds = self._bounds
        if self._answers >= bounds.answers or self._bytes >= bounds.bytes:
            self._counts["dropped"] += 1
            return None
        batch = self._open.get(ttl_s)
        if batch is None or batch.epoch != self._state.epoch:
            batch = _Batch(self._name(), ttl_s, self._state.epoch)
            self._open[ttl_s] = self._batches[batch.place] = batch
        return batch.place

    def add(self, entry: Entry, stored: Stored) -> None:
        """Add an answer to the queue. The caller must have set `entry.place` to the result of the last call of
        `place`."""
        batch, size, bounds = self._batches[entry.place], entry.size, self._bounds
        batch.items[entry.digest] = entry, stored
        batch.bytes += size
        self._answers += 1
        self._bytes += size
        if len(batch.items) >= bounds.batch_answers or batch.bytes >= bounds.batch_bytes:
            self._open.pop(batch.ttl_s, None)
        self._wake.set()

    def add_vector(self, entry: Entry) -> None:
        """Send `entry` again, now with its question and vector, but without its answer."""
        self._with_vectors.append(entry)
        self._wake.set()

    def find(self, entry: Entry) -> Stored | None:
        """The answer of `entry`, if it has not been sent yet; otherwise None."""
        batch = self._batches.get(entry.place)
        item = batch.items.get(entry.digest) if batch else None
        return item[1] if item else None

    def withdraw(self, entry: Entry) -> None:
        """Do not send `entry`, because it was removed from the index. If the entry is already being sent, it is deleted
        from the state server afterwards."""
        batch = self._batches.get(entry.place)
        if batch is None or entry.digest not in batch.items:
            return
        if batch.sending:
            self._delete_later([entry])
            return
        del batch.items[entry.digest]
        batch.bytes -= entry.size
        self._answers -= 1
        self._bytes -= entry.size

    def discard(self, entries: Iterable[Entry]) -> None:
        """Delete the answers of `entries` from the state server, if they have been sent. The other workers are informed
        with the next batch."""
        self._delete_later([entry for entry in entries if entry.place not in self._batches])

    def _delete_later(self, entries: list[Entry]) -> None:
        if entries:
            self._to_delete += entries
            self._wake.set()

    def own(self, name: bytes) -> bool:
        """Whether this worker has written the log entry `name`. The method forgets the name, so call it only once
        for each entry.
        """
        if name not in self._own_names:
            return False
        del self._own_names[name]
        return True

    def clear(self) -> None:
        """Drop all waiting answers, because the state server has lost its data. A flush that covers these answers may
        also be lost."""
        for batch in self._batches.values():
            self._drop(batch)
        self._batches = {place: batch for place, batch in self._batches.items() if batch.sending}
        self._open.clear()
        self._with_vectors.clear()
        self._to_delete.clear()
        self._own_names.clear()

    # -- send --------------------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Send everything that waits. Returns when all of it has been sent or dropped."""
        async with self._lock:
            batches = list(self._batches.values())
            self._open.clear()
            for batch in batches:
                batch.sending = True
            with_vectors, self._with_vectors = self._with_vectors, []
            to_delete, self._to_delete = self._to_delete, []
            try:
                for batch in batches:
                    await self._send(batch)
            finally:  # after a cancellation, the remaining batches are dropped too
                for batch in batches:
                    self._finish(batch)
            for entry in with_vectors:
                await _succeeds(
                    self._append_batch(Batch(self._name(), entry.place, self._state.epoch, (entry,))), "meaning"
                )
            if to_delete:
                await _succeeds(self._bodies.delete(to_delete), "deletion")
                await _succeeds(self._announce_deletion(to_delete), "deletion")

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(self._period_s)
            self._wake.clear()
            await self.flush()

    async def _send(self, batch: _Batch) -> None:
        fit = batch.epoch == self._state.epoch and self._state.healthy
        if fit and batch.items and await _succeeds(self._deliver(batch), "answers"):
            self._counts["sent"] += len(batch.items)
            self._drop(batch)

    async def _deliver(self, batch: _Batch) -> None:
        """Write the answers to the state server first, and the log entry afterwards, so that readers of the entry
        find the answers.
        """
        items = list(batch.items.items())
        await self._bodies.put(batch.place, [(digest, stored) for digest, (_, stored) in items], batch.ttl_s)
        await self._append_batch(Batch(batch.place, batch.place, batch.epoch, [entry for _, (entry, _) in items]))

    async def _append_batch(self, batch: Batch) -> None:
        await self._append(batch.name, encode(batch), len(batch.entries))
        self._counts["batches"] += 1

    async def _announce_deletion(self, entries: list[Entry]) -> None:
        name = self._name()
        await self._append(name, encode_gone(name, entries), 1)

    async def _append(self, name: str, fields: dict[str | bytes, bytes], weight: int) -> None:
        """Append an entry to the index log. The name of the entry is remembered, so that this worker does not apply its
        own entry."""
        own = name.encode()
        if len(self._own_names) >= _MOST_OWN:
            self._own_names.clear()
        self._own_names[own] = None
        try:
            await self._log.append(fields, weight=weight)
        except BaseException:
            self._own_names.pop(own, None)  # the log may contain the entry despite the error; then it must be applied
            raise

    def _finish(self, batch: _Batch) -> None:
        """Remove the batch. Report the answers that are still in the batch as lost."""
        lost = [entry for entry, _ in batch.items.values()]
        self._drop(batch)
        self._batches.pop(batch.place, None)
        self._counts["lost"] += len(lost)
        self._lost(lost)

    def _drop(self, batch: _Batch) -> None:
        self._answers -= len(batch.items)
        self._bytes -= batch.bytes
        batch.items, batch.bytes = {}, 0

    def _name(self) -> str:
        self._made += 1
        return f"{self._author}-{self._made}"

    def stats(self) -> dict[str, int | float | str]:
        return {"waiting": self._answers, "waiting_bytes": self._bytes, **self._counts}


async def _succeeds(work: Coroutine[Any, Any, None], what: str) -> bool:
    """Run `work`, and return whether it succeeded. `what`: description for the log.

    Errors are logged and not raised, because the next steps must run in any case.
    """
    try:
        await work
    except StateUnavailable as error:
        log.debug("the state server did not store %s: %s", what, error)
    except Exception:
        log.exception("%s could not be sent", what)
    else:
        return True
    return False
