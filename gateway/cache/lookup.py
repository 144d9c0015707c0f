"""The room's door: look an answer up, store a new one, flush what is no longer wanted."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from dataclasses import dataclass

from gateway.cache import key
from gateway.cache.bodies import Bodies, Stored
from gateway.cache.entry import Entry, Flush, Vector, decode, encode, encode_flush
from gateway.cache.exact import Known, Quota
from gateway.cache.keepable import keepable
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


@dataclass(frozen=True, slots=True)
class Hit:
    answer: Answer
    saved_pico: int | None
    """What the backend that first answered took for it; None: unpriced."""
    usage: Usage


@dataclass(frozen=True, slots=True)
class Ticket:
    """What storing the answer needs, worked out once."""

    digest: bytes
    team: str
    tags: tuple[str, ...]
    asked_at: float
    ttl_s: float
    question: key.Question | None
    vector: Vector | None = None


@dataclass(frozen=True, slots=True)
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
        self._state, self._log, self._revision = state, log, revision
        self._bodies = Bodies(state)
        self._semantic = Semantic(embedder, max_bytes=index_bytes)
        self._known = Known(quota or Quota(), self._gone)
        self._fresh: dict[bytes, tuple[str, Stored]] = {}
        """What this worker is storing, with its team, until the log tells of it: asked again at once, it is there."""
        self._author = uuid.uuid4().hex
        self._tasks = Tasks()
        self._counts = {"exact": 0, "semantic": 0, "miss": 0, "bypass": 0, "stored": 0, "unkept": 0, "flushed": 0}

    async def open(self) -> None:
        await self._semantic.open()
        self._tasks.spawn(self._log.follow(self._apply, self._reset), "cache-log")
        self._tasks.spawn(self._tidy(), "cache-tidy")

    async def caught_up(self, timeout_s: float) -> None:
        """Wait until all answers that other workers stored are known here. Raises StateUnavailable."""
        await self._log.caught_up(timeout_s)

    async def aclose(self) -> None:
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
        ticket = self._ticket(request, tenant)
        if control == "refresh":
            return self._miss(record, "miss", ticket, control)
        if not self._state.healthy:
            record.degraded.add("state")
            return self._miss(record, "miss", ticket, control)
        try:
            if hit := await self._recall(ticket.digest, "exact", request, record):
                return hit
            if ticket.question is not None:
                found, ticket = await self._by_meaning(ticket, tenant, record)
                if found and (hit := await self._recall(found, "semantic", request, record)):
                    return hit
        except StateUnavailable:
            record.degraded.add("state")
        return self._miss(record, "miss", ticket, control)

    def _ticket(self, request: CompletionRequest, tenant: Tenant) -> Ticket:
        return Ticket(
            digest=key.digest(request, tenant, self._revision),
            team=tenant.team,
            tags=request.controls.cache_tags,
            asked_at=time.time(),
            ttl_s=tenant.policy.cache.ttl,
            question=key.question(request, tenant, self._revision, self._semantic.name),
        )

    async def _by_meaning(self, ticket: Ticket, tenant: Tenant, record: Record) -> tuple[bytes | None, Ticket]:
        """The digest of the answer to the same question, and the ticket with the vector that was needed for it."""
        assert ticket.question is not None
        if self._semantic.failed:
            record.degraded.add("embedder")
        vector, found = await self._semantic.find(ticket.question, tenant.policy.cache.semantic.max_error)
        if vector is not None:
            ticket = Ticket(
                ticket.digest, ticket.team, ticket.tags, ticket.asked_at, ticket.ttl_s, ticket.question, vector
            )
        if found is None:
            return None, ticket
        record.cache_score = round(found.score, 4)
        return found.digest, ticket

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
        if digest in self._fresh:
            return self._fresh[digest][1]
        if self._known.get(digest, time.time()) is None:
            return None
        stored = await self._bodies.get(digest, recall=self._log.current)
        if stored is None:
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

    async def store(self, miss: Miss, answer: Answer, record: Record) -> None:
        """Keep a whole answer that ended cleanly. An answer that cannot be kept is no error."""
        ticket, attempt = miss.ticket, answer.attempt
        if ticket is None or attempt is None or attempt.usage is None:
            return
        completion = keepable(answer)
        if completion is None:
            self._counts["unkept"] += 1
            return
        stored = Stored(completion, attempt.usage, attempt.cost_pico, attempt.backend.name, attempt.backend.model)
        self._fresh[ticket.digest] = ticket.team, stored
        try:
            await self._keep(ticket, stored, by_meaning=answer.finish == "stop")
        except StateUnavailable:
            self._fresh.pop(ticket.digest, None)
            record.degraded.add("state")
        except BaseException:
            self._fresh.pop(ticket.digest, None)
            raise

    async def _keep(self, ticket: Ticket, stored: Stored, *, by_meaning: bool) -> None:
        question = ticket.question if by_meaning else None
        vector = ticket.vector if question else None
        if question is not None and vector is None:
            vector = await self._semantic.vector(question)
        entry = Entry(
            digest=ticket.digest,
            team=ticket.team,
            tags=ticket.tags,
            asked_at=ticket.asked_at,
            expires_at=time.time() + ticket.ttl_s,
            size=len(stored.completion),
            question=question if vector is not None else None,
            vector=vector,
        )
        # The body first: whoever learns of the entry must find it.
        await self._bodies.put(ticket.digest, stored, ticket.ttl_s)
        await self._log.append(encode(entry, self._author))
        self._counts["stored"] += 1

    # -- forget ----------------------------------------------------------------------------------------------------

    async def flush(
        self, team: str, tag: str | None = None, older_than_s: float | None = None, dry_run: bool = False
    ) -> int:
        """Forget what `team` stored, in every worker; how many answers that are. Raises StateUnavailable."""
        flush = Flush(team, time.time() - (older_than_s or 0.0), tag)
        covered = [entry.digest for entry in self._known.covered(flush)]
        if not dry_run:
            await self._log.append(encode_flush(flush))
            self._forget(flush)
            await self._bodies.delete(covered)
            self._counts["flushed"] += len(covered)
        return len(covered)

    # -- follow the log --------------------------------------------------------------------------------------------

    def _apply(self, _: str, fields: dict[bytes, bytes]) -> None:
        change, author = decode(fields)
        if isinstance(change, Flush):
            self._forget(change)
            return
        evicted = self._known.put(change, time.time())
        if author == self._author:
            self._fresh.pop(change.digest, None)
        if self._known.get(change.digest, 0.0) is change:
            self._semantic.add(change)
        if evicted and author == self._author:
            self._tasks.spawn(self._delete([entry.digest for entry in evicted]), "cache-evict")

    def _forget(self, flush: Flush) -> None:
        self._known.flush(flush)
        self._fresh = {digest: found for digest, found in self._fresh.items() if found[0] != flush.team}

    async def _delete(self, digests: list[bytes]) -> None:
        try:
            await self._bodies.delete(digests)
        except StateUnavailable:
            log.debug("%d evicted answers stay in the state server until they expire", len(digests))

    def _gone(self, entry: Entry) -> None:
        self._bodies.forget(entry.digest)
        self._semantic.remove(entry)

    def _reset(self) -> None:
        log.warning("the state server lost its data; the cache begins anew")
        self._known.clear()
        self._fresh.clear()

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
            **self._semantic.stats(),
        }
