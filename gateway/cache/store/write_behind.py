"""Writes stored answers to the state server in batches; no request waits for it."""

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
    """What may wait. Beyond it answers are not kept: that saves nothing, and costs nothing either."""

    answers: int = 4000
    bytes: int = 32 * 2**20
    batch_answers: int = 128
    batch_bytes: int = 2**20


@dataclass(slots=True)
class _Batch:
    """Answers with one time to live."""

    place: str
    ttl_s: float
    epoch: str
    items: dict[bytes, tuple[Entry, Stored]] = field(default_factory=dict)
    bytes: int = 0
    leaving: bool = False
    """Being sent: what is withdrawn from now on has to be deleted again."""


class WriteBehind:
    """`lost(entries)` tells which answers did not arrive. Nothing is tried twice."""

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
        self._state, self._log, self._bodies, self._lost = state, log, bodies, lost
        self._period_s, self._bounds = period_s, bounds or Bounds()
        self._author = uuid.uuid4().hex
        self._made = 0
        self._parcels: dict[str, _Batch] = {}
        """By place; in the order in which they go."""
        self._open: dict[float, _Batch] = {}
        """By time to live: where the next answer goes."""
        self._meant: list[Entry] = []
        """What was stored before its vector was known."""
        self._doomed: list[Entry] = []
        """To be deleted from the server."""
        self._own: dict[bytes, None] = {}
        """Names of what is on the log and this worker need not read."""
        self._answers = self._bytes = 0
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self._tasks = Tasks()
        self._counts = {"sent": 0, "batches": 0, "dropped": 0, "lost": 0}

    async def open(self) -> None:
        self._tasks.spawn(self._run(), "cache-outbox")

    async def aclose(self) -> None:
        """What waits still is lost: `flush` first."""
        await self._tasks.aclose()

    # -- at once ---------------------------------------------------------------------------------------------------

    def place(self, ttl_s: float) -> str | None:
        """Where the next answer with this time to live will be; None while too much is waiting."""
        if self._answers >= self._bounds.answers or self._bytes >= self._bounds.bytes:
            self._counts["dropped"] += 1
            return None
        parcel = self._open.get(ttl_s)
        if parcel is None or parcel.epoch != self._state.epoch:
            parcel = _Batch(self._name(), ttl_s, self._state.epoch)
            self._open[ttl_s] = self._parcels[parcel.place] = parcel
        return parcel.place

    def add(self, entry: Entry, stored: Stored) -> None:
        """`entry.place` is the result of the last `place`."""
        parcel = self._parcels[entry.place]
        parcel.items[entry.digest] = entry, stored
        parcel.bytes += entry.size
        self._answers += 1
        self._bytes += entry.size
        if len(parcel.items) >= self._bounds.batch_answers or parcel.bytes >= self._bounds.batch_bytes:
            self._open.pop(parcel.ttl_s, None)
        self._wake.set()

    def mean(self, entry: Entry) -> None:
        """`entry` again, now with its question and vector; its answer stays where it is."""
        self._meant.append(entry)
        self._wake.set()

    def find(self, entry: Entry) -> Stored | None:
        """Its answer, while that is here."""
        parcel = self._parcels.get(entry.place)
        item = parcel.items.get(entry.digest) if parcel else None
        return item[1] if item else None

    def withdraw(self, entry: Entry) -> None:
        """Nobody knows of it any more: it need not go."""
        parcel = self._parcels.get(entry.place)
        if parcel is None or entry.digest not in parcel.items:
            return
        if parcel.leaving:
            self._doom([entry])
            return
        del parcel.items[entry.digest]
        parcel.bytes -= entry.size
        self._answers -= 1
        self._bytes -= entry.size

    def discard(self, entries: Iterable[Entry]) -> None:
        """Delete from the server, with the next batch, what is there of them, and tell the other workers."""
        self._doom([entry for entry in entries if entry.place not in self._parcels])

    def _doom(self, entries: list[Entry]) -> None:
        if entries:
            self._doomed += entries
            self._wake.set()

    def own(self, name: bytes) -> bool:
        """Is this what was sent from here? Asked once for each."""
        if name not in self._own:
            return False
        del self._own[name]
        return True

    def clear(self) -> None:
        """The server lost its data: what waits may be covered by a flush that was lost with it."""
        for parcel in self._parcels.values():
            self._drop(parcel)
        self._parcels = {place: parcel for place, parcel in self._parcels.items() if parcel.leaving}
        self._open.clear()
        self._meant.clear()
        self._doomed.clear()
        self._own.clear()

    # -- a few times a second ----------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Send all that waits, after what is being sent already."""
        async with self._turn:
            parcels = list(self._parcels.values())
            self._open.clear()
            for parcel in parcels:
                parcel.leaving = True
            meant, self._meant = self._meant, []
            doomed, self._doomed = self._doomed, []
            try:
                for parcel in parcels:
                    await self._send(parcel)
            finally:  # cancelled: the others don't go either
                for parcel in parcels:
                    self._finish(parcel)
            for entry in meant:
                await _tried(self._tell(Batch(self._name(), entry.place, self._state.epoch, (entry,))), "meaning")
            if doomed:
                await _tried(self._bodies.delete(doomed), "deletion")
                await _tried(self._bury(doomed), "deletion")

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(self._period_s)
            self._wake.clear()
            await self.flush()

    async def _send(self, parcel: _Batch) -> None:
        fit = parcel.epoch == self._state.epoch and self._state.healthy
        if fit and parcel.items and await _tried(self._deliver(parcel), "answers"):
            self._counts["sent"] += len(parcel.items)
            self._drop(parcel)

    async def _deliver(self, parcel: _Batch) -> None:
        """Write the answers first: a worker that reads of an entry must find its answer."""
        items = list(parcel.items.items())
        await self._bodies.put(parcel.place, [(digest, stored) for digest, (_, stored) in items], parcel.ttl_s)
        await self._tell(Batch(parcel.place, parcel.place, parcel.epoch, [entry for _, (entry, _) in items]))

    async def _tell(self, batch: Batch) -> None:
        await self._append(batch.name, encode(batch), len(batch.entries))
        self._counts["batches"] += 1

    async def _bury(self, entries: list[Entry]) -> None:
        name = self._name()
        await self._append(name, encode_gone(name, entries), 1)

    async def _append(self, name: str, fields: dict[str | bytes, bytes], weight: int) -> None:
        """To the log, where this worker need not read it again."""
        own = name.encode()
        if len(self._own) >= _MOST_OWN:
            self._own.clear()
        self._own[own] = None
        try:
            await self._log.append(fields, weight=weight)
        except BaseException:
            self._own.pop(own, None)  # if it arrived all the same, it is news
            raise

    def _finish(self, parcel: _Batch) -> None:
        """It is gone, and what is still in it is lost."""
        lost = [entry for entry, _ in parcel.items.values()]
        self._drop(parcel)
        self._parcels.pop(parcel.place, None)
        self._counts["lost"] += len(lost)
        self._lost(lost)

    def _drop(self, parcel: _Batch) -> None:
        self._answers -= len(parcel.items)
        self._bytes -= parcel.bytes
        parcel.items, parcel.bytes = {}, 0

    def _name(self) -> str:
        self._made += 1
        return f"{self._author}-{self._made}"

    def stats(self) -> dict[str, int | float | str]:
        return {"waiting": self._answers, "waiting_bytes": self._bytes, **self._counts}


async def _tried(work: Coroutine[Any, Any, None], what: str) -> bool:
    """Did it succeed? A failure costs what was to be saved; it must not silence what follows."""
    try:
        await work
    except StateUnavailable as error:
        log.debug("%s did not arrive: %s", what, error)
    except Exception:
        log.exception("%s could not be sent", what)
    else:
        return True
    return False
