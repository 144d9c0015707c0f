"""The room's door: look an answer up, store a new one, flush what is no longer wanted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass

from gateway.cache.bodies import Bodies, Stored
from gateway.cache.embedder import Vector
from gateway.cache.entry import Entry, Flush, decode, encode_flush, name_of
from gateway.cache.exact import Known, Quota
from gateway.cache.keepable import keepable
from gateway.cache.key import Keys, Question
from gateway.cache.outbox import Outbox
from gateway.cache.semantic import Semantic
from gateway.dialects.replay import Replayed
from gateway.domain.answer import Answer
from gateway.domain.protocols import Embedder
from gateway.domain.record import CacheResult, Record
from gateway.domain.request import CompletionRequest
from gateway.domain.tasks import Tasks
from gateway.domain.tenant import Tenant
from gateway.domain.usage import Usage
from gateway.errors import CacheOnlyMiss, StateUnavailable
from gateway.state.connection import State
from gateway.state.log import IndexLog

log = logging.getLogger(__name__)

TIDY_S = 10.0
CLOSE_S = 1.0
"""Longest wait for the last answers to get to the server."""


@dataclass(frozen=True, slots=True)
class Hit:
    answer: Answer
    saved_pico: int | None
    """What the backend that first answered took for it; None: unpriced."""
    usage: Usage


@dataclass(slots=True)
class Ticket:
    """What storing the answer needs, worked out once."""

    digest: bytes
    team: str
    tags: tuple[str, ...]
    asked_at: float
    ttl_s: float
    question: Question | None
    vector: Vector | None = None


@dataclass(slots=True)
class Miss:
    ticket: Ticket | None
    """None: the answer is not to be kept."""


class Cache:
    """One per worker. All workers follow one index log, so they know the same answers within moments."""

    def __init__(
        self,
        state: State,
        log: IndexLog,
        embedder: Embedder | None,
        *,
        revision: str = "",
        quota: Quota | None = None,
        index_bytes: int = 256 * 2**20,
    ) -> None:
        """`revision` is part of every key: give it a new value when the backends behind the names are others."""
        self._state, self._log = state, log
        self._keys = Keys(revision)
        self._bodies = Bodies(state)
        self._outbox = Outbox(state, log, self._bodies, self._lost)
        self._known = Known(quota or Quota(), self._gone)
        self._semantic = Semantic(embedder, max_bytes=index_bytes, kept=self._known.entries)
        self._tasks, self._meanings = Tasks(), Tasks()
        self._counts = {"exact": 0, "semantic": 0, "miss": 0, "bypass": 0, "stored": 0, "unkept": 0, "flushed": 0}

    async def open(self) -> None:
        await self._outbox.open()
        self._tasks.spawn(self._log.follow(self._apply, self._reset), "cache-log")
        self._tasks.spawn(self._tidy(), "cache-tidy")

    def begin_by_meaning(self) -> None:
        """Load what finds paraphrases, in the background. The first question for it would too, and be a miss."""
        self._semantic.begin()

    async def caught_up(self, timeout_s: float) -> None:
        """Wait until all answers that other workers stored are known here. Raises StateUnavailable."""
        await self._log.caught_up(timeout_s)

    async def deliver(self) -> None:
        """Wait until all that was stored here is with the server, or lost."""
        await self._meanings.drain(CLOSE_S)
        await self._outbox.flush()

    async def aclose(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self.deliver()
        await self._meanings.aclose()
        await self._outbox.aclose()
        await self._tasks.aclose()
        await self._semantic.aclose()

    # -- look up ---------------------------------------------------------------------------------------------------

    async def lookup(self, request: CompletionRequest, tenant: Tenant, record: Record) -> Hit | Miss:
        """Sets `record.cache` and, on a hit, what it saved. Raises CacheOnlyMiss when nothing else was wanted."""
        control = request.controls.cache
        if not tenant.policy.cache.enabled or request.parallel != 1:
            return self._miss(record, "off", None, control)
        if control == "bypass":
            return self._miss(record, "bypass", None, control)
        ticket = self._ticket(request, tenant, record)
        if control == "refresh":
            return self._miss(record, "miss", ticket, control)
        if not self._state.healthy:
            record.degraded.add("state")
            return self._miss(record, "miss", ticket, control)
        try:
            if hit := await self._recall(ticket.digest, "exact", request, record):
                return hit
            if ticket.question is not None:
                found = await self._by_meaning(ticket, tenant, record)
                if found and (hit := await self._recall(found, "semantic", request, record)):
                    return hit
        except StateUnavailable:
            record.degraded.add("state")
        return self._miss(record, "miss", ticket, control)

    def _ticket(self, request: CompletionRequest, tenant: Tenant, record: Record) -> Ticket:
        return Ticket(
            self._keys.digest(request, tenant),
            tenant.team,
            request.controls.cache_tags,
            record.started_at,
            tenant.policy.cache.ttl,
            self._keys.question(request, tenant, self._semantic.name),
        )

    async def _by_meaning(self, ticket: Ticket, tenant: Tenant, record: Record) -> bytes | None:
        """The digest of the answer to the same question. The vector that was needed for it goes on the ticket."""
        assert ticket.question is not None
        if self._semantic.failed:
            record.degraded.add("embedder")
        vector, found = await self._semantic.find(ticket.question, tenant.policy.cache.semantic.max_error)
        ticket.vector = vector
        if found is None:
            return None
        record.cache_score = round(found.score, 4)
        return found.digest

    async def _recall(
        self, digest: bytes, result: CacheResult, request: CompletionRequest, record: Record
    ) -> Hit | None:
        """The stored answer; None, and no longer known, when the server has let it go."""
        stored = await self._find(digest)
        if stored is None:
            return None
        self._counts[result] += 1
        record.cache, record.saved_pico = result, stored.cost_pico
        record.note("cache", result=result, backend=stored.backend, model=stored.model, score=record.cache_score)
        return Hit(Replayed(request, stored.completion), stored.cost_pico, stored.usage)

    async def _find(self, digest: bytes) -> Stored | None:
        entry = self._known.get(digest, time.time())
        if entry is None:
            return None
        stored = self._outbox.find(entry) or await self._bodies.get(entry, recall=self._log.current)
        if stored is None and self._known.get(digest, 0.0) is entry:
            self._known.remove(digest)
        return stored

    def _miss(self, record: Record, result: CacheResult, ticket: Ticket | None, control: str) -> Miss:
        record.cache, record.cache_score = result, None
        if result in self._counts:
            self._counts[result] += 1
        if control == "only":
            raise CacheOnlyMiss(
                "No stored answer for this request, and x-thriftgate-cache: only asks for nothing else; "
                "leave the header out to have a backend answer."
            )
        return Miss(ticket)

    # -- store -----------------------------------------------------------------------------------------------------

    def store(self, miss: Miss, answer: Answer, record: Record) -> None:
        """Keep a whole answer that ended cleanly: this worker has it at once, the others in a moment. Awaits nothing.

        An answer that cannot be kept is no error.
        """
        ticket, attempt = miss.ticket, answer.attempt
        if ticket is None or attempt is None or attempt.usage is None:
            return
        completion = keepable(answer, record.dialect)
        if completion is None:
            self._counts["unkept"] += 1
            return
        if not self._state.healthy:
            record.degraded.add("state")
            return
        place = self._outbox.place(ticket.ttl_s)
        if place is None:
            return
        question = ticket.question if answer.finish == "stop" else None
        entry = self._entry(ticket, len(completion), place, question if ticket.vector is not None else None)
        if self._learn(entry):
            stored = Stored(completion, attempt.usage, attempt.cost_pico, attempt.backend.name, attempt.backend.model)
            self._outbox.add(entry, stored)
            self._bodies.keep(entry.digest, stored)
            self._counts["stored"] += 1
            if question is not None and ticket.vector is None and self._semantic.ready:
                self._meanings.spawn(self._mean(ticket, entry, question), "cache-meaning")

    def _entry(self, ticket: Ticket, size: int, place: str, question: Question | None) -> Entry:
        vector = ticket.vector if question else None
        expires_at = time.time() + ticket.ttl_s
        return Entry(
            ticket.digest, ticket.team, ticket.tags, ticket.asked_at, expires_at, size, question, vector, place
        )

    async def _mean(self, ticket: Ticket, entry: Entry, question: Question) -> None:
        """Make an answer findable by meaning too, whose vector was not known when it was stored."""
        ticket.vector = await self._semantic.vector(question)
        if ticket.vector is not None and self._known.get(entry.digest, time.time()) is entry:
            meant = entry._replace(question=question, vector=ticket.vector)
            self._known.replace(meant)
            self._semantic.add(meant)
            self._outbox.mean(meant)

    def _learn(self, entry: Entry) -> bool:
        """Know it from now on, unless it was flushed meanwhile or is too large; what had to go for it is deleted."""
        gone = self._known.put(entry, time.time())
        if gone:
            self._outbox.discard(gone)
        if self._known.get(entry.digest, 0.0) is not entry:
            return False
        self._semantic.add(entry)
        return True

    def _lost(self, entries: Iterable[Entry]) -> None:
        """They did not get to the server."""
        for entry in entries:
            known = self._known.get(entry.digest, 0.0)
            if known is not None and known.place == entry.place:
                self._known.remove(entry.digest)

    # -- forget ----------------------------------------------------------------------------------------------------

    async def flush(
        self, team: str, tag: str | None = None, older_than_s: float | None = None, dry_run: bool = False
    ) -> int:
        """Forget what `team` stored, in every worker; how many answers that are. Raises StateUnavailable."""
        flush = Flush(team, time.time() - (older_than_s or 0.0), tag)
        covered = list(self._known.covered(flush))
        if not dry_run:
            await self._log.append(encode_flush(flush))
            late = self._known.flush(flush)  # some may have come meanwhile
            await self._bodies.delete({entry.digest: entry for entry in [*covered, *late]}.values())
            self._counts["flushed"] += len(covered)
        return len(covered)

    # -- follow the log --------------------------------------------------------------------------------------------

    def _apply(self, _: str, fields: dict[bytes, bytes]) -> None:
        if self._outbox.own(name_of(fields)):
            return
        change = decode(fields)
        if isinstance(change, Flush):
            self._known.flush(change)
        elif change.epoch == self._state.epoch:
            now = time.time()
            for entry in change.entries:
                self._known.put(entry, now)  # whoever stored it deletes what has to go for it
                if entry.vector is not None and self._known.get(entry.digest, 0.0) is entry:
                    self._semantic.add(entry)

    def _gone(self, entry: Entry) -> None:
        self._bodies.forget(entry.digest)
        self._outbox.withdraw(entry)
        self._semantic.remove(entry)

    def _reset(self) -> None:
        log.warning("the state server lost its data; the cache begins anew")
        self._known.clear()
        self._outbox.clear()

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_S)
            self._known.expire(time.time())
            await self._semantic.tidy()

    def stats(self) -> dict[str, int | float | str]:
        return {
            **self._counts,
            "entries": len(self._known),
            "bytes": self._known.size,
            "evicted": self._known.evicted,
            "recalled": self._bodies.recalled,
            **self._outbox.stats(),
            **self._semantic.stats(),
        }
