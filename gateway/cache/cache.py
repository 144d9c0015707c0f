"""The cache's interface: look up, coalesce, store, flush."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from gateway.cache.cacheable import doubtful, keepable
from gateway.cache.coalescing.coalescer import Coalescer
from gateway.cache.coalescing.source import Purchase
from gateway.cache.entry import Batch, Entry, Flush, Gone, Judged, Wrong, decode, name_of
from gateway.cache.keys import Keys, Question, asker, scope
from gateway.cache.packing import pack
from gateway.cache.quality.counters import HitCounters
from gateway.cache.quality.hit_checker import HitChecker
from gateway.cache.quality.threshold import Thresholds
from gateway.cache.result import Hit, Join, Miss, Ticket
from gateway.cache.semantic.pending import PendingQuestions
from gateway.cache.semantic.service import Semantic
from gateway.cache.store.bodies import Bodies, Stored
from gateway.cache.store.exact import ExactIndex, Quota
from gateway.cache.store.invalidation import Invalidation
from gateway.cache.store.snapshot import Snapshots, SnapshotWriter
from gateway.cache.store.write_behind import Bounds, WriteBehind
from gateway.dialects.replay import Replayed
from gateway.domain.answer import Answer
from gateway.domain.policy import CachePolicy
from gateway.domain.protocols import Embedder, FreshAnswerSource
from gateway.domain.record import CacheResult, Record
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Tenant
from gateway.errors import CacheOnlyMiss, StateUnavailable
from gateway.runtime.garbage_collection import leave_out
from gateway.runtime.off_loop import OffLoop
from gateway.runtime.tasks import Tasks
from gateway.state.redis.connection import State
from gateway.state.redis.log import IndexLog
from gateway.state.sql.database import Database

log = logging.getLogger(__name__)

TIDY_S = 10.0
CLOSE_S = 1.0
"""Maximum seconds that closing the cache waits until the last answers have reached the state server."""


class Cache:
    """The cache of one worker. An answer that one worker stores is soon known to all workers."""

    def __init__(
        self,
        state: State,
        log: IndexLog,
        embedder: Embedder | None,
        *,
        revision: str = "",
        quota: Quota | None = None,
        index_bytes: int = 256 * 2**20,
        peers: Path | None = None,
        checks: float = 0.0,
        keep: SnapshotWriter | None = None,
        off_loop: OffLoop | None = None,
        unsent: Bounds | None = None,
    ) -> None:
        """Create the cache of one worker.

        `revision`: part of every key; change it when backend names begin to mean other models. `peers`: folder
        through which this host's workers find each other; None: there is only one worker. `checks`: share of the
        semantic hits (0 to 1) that are compared with fresh answers. `keep`: snapshot of the index; None: there is
        no snapshot. `unsent`: limit for answers that wait to be written to the state server.
        """
        self._state, self._log, self._off_loop = state, log, off_loop or OffLoop()
        self._keys = Keys(revision)
        self._bodies = Bodies(state)
        self._write_behind = WriteBehind(state, log, self._bodies, self._lost, bounds=unsent)
        self._exact = ExactIndex(quota or Quota(), self._gone)
        self._semantic = Semantic(embedder, max_bytes=index_bytes, kept=self._exact.entries)
        self._hit_checker = HitChecker(self._semantic, Thresholds(share=checks), self._find)
        self._snapshots = Snapshots(keep, log, self._exact.entries, state)
        self._invalidation = Invalidation(log, self._exact, self._bodies, self._write_behind, self._snapshots.flushed)
        self._coalescer = Coalescer(state, self._write_behind.flush, self._exact.has, self._find, peers)
        self._tasks, self._meanings = Tasks(), Tasks()
        self._pending = PendingQuestions(self._semantic, partial(self._mean, again=False))
        self._counts = {"exact": 0, "semantic": 0, "miss": 0, "bypass": 0, "stored": 0, "unkept": 0}

    async def open(self) -> None:
        await self._write_behind.open()
        await self._coalescer.open()
        self._tasks.spawn(self._follow(), "cache-log")
        self._tasks.spawn(self._tidy(), "cache-tidy")

    def begin_by_meaning(self) -> None:
        """Load the embedder and the verifier in the background. Without this call, the first semantic look-up
        starts the loading, and is itself a miss.
        """
        self._semantic.begin()

    def check_with(self, shadow: FreshAnswerSource) -> None:
        """Set the source of fresh answers, with which a share of the semantic hits is compared."""
        self._hit_checker.shadow = shadow

    def measure_in(self, database: Database) -> None:
        """Set the database that counts checked and wrong hits per team."""
        self._hit_checker.measures = HitCounters(database)

    def errors(self) -> list[dict[str, Any]]:
        """The measured wrong hits (of all workers) and the present threshold of each scope."""
        return self._hit_checker.report()

    def team_errors(self) -> dict[str, dict[str, Any]]:
        """Team → its measured wrong hits and present threshold. Teams that share cached answers with other teams are
        left out."""
        return {one["scope"].rpartition("/")[2]: one for one in self.errors() if one["scope"].startswith("team/")}

    async def caught_up(self, timeout_s: float) -> None:
        """Wait until this worker knows all answers that other workers have stored so far. Raises StateUnavailable."""
        await self._log.caught_up(timeout_s)

    async def deliver(self) -> None:
        """Wait until every answer that this worker has stored has reached the state server or was lost."""
        await self._meanings.drain(CLOSE_S)
        await self._write_behind.flush()

    async def aclose(self) -> None:
        await self._coalescer.aclose()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self.deliver()
        await self._pending.aclose()
        await self._hit_checker.aclose()
        await self._meanings.aclose()
        await self._write_behind.aclose()
        await self._tasks.aclose()
        await self._semantic.aclose()

    # -- look up ---------------------------------------------------------------------------------------------------

    async def lookup(
        self, request: CompletionRequest, tenant: Tenant, record: Record, deadline: float = float("inf")
    ) -> Hit | Join | Miss:
        """Look up the answer to a request. Sets `record.cache` and, on a hit, the saved cost. `deadline`: loop
        time.

        A Join is returned once its first bytes have arrived. Raises CacheOnlyMiss if the client accepts only stored
        answers.
        """
        control, policy = request.controls.cache, tenant.policy.cache
        if not policy.enabled or request.parallel != 1:
            return self._miss(record, "off", None, control)
        if control == "bypass":
            return self._miss(record, "bypass", None, control)
        if request.is_large:
            ticket = await self._off_loop.run(self._ticket, request, tenant, record)
        else:
            ticket = self._ticket(request, tenant, record)
        digest, shared = ticket.digest, self._coalescer.allowed(request, tenant)
        if control != "refresh":
            if self._exactly(ticket, record) and (hit := await self._recall(digest, "exact", request, record)):
                return hit
            if ticket.question is not None:
                subscriber = self._coalescer.subscribe(digest, request, deadline, claim=False) if shared else None
                if subscriber is not None and (
                    join := await self._coalescer.join(subscriber, digest, request, deadline, claim=False)
                ):
                    return self._joined(join, record)
                if hit := await self._by_meaning(ticket, ticket.question, request, tenant, record):
                    return hit
            if shared:
                claim = control != "only"
                if (
                    policy.join == "everywhere"
                    and claim
                    and await self._coalescer.wait_for_other_gateway(digest, deadline)
                    and self._exactly(ticket, record)
                    and (hit := await self._recall(digest, "exact", request, record))
                ):
                    return hit
                subscriber = self._coalescer.subscribe(digest, request, deadline, claim=claim)
                if subscriber is not None and (
                    join := await self._coalescer.join(subscriber, digest, request, deadline, claim=claim)
                ):
                    return self._joined(join, record)
        return self._miss(record, "miss", ticket, control, shared=shared)

    def coalesce(
        self,
        miss: Miss,
        request: CompletionRequest,
        deadline: float,
        purchase: Purchase,
        buy: Callable[[], Awaitable[None]],
    ) -> Awaitable[None]:
        """Call `buy` once, and give its answer also to all identical requests that arrive during the call. Call this
        method right after `lookup`.

        Returns when the first bytes have arrived. `purchase`: the answer that `buy` fetches. `deadline`: loop time.
        Raises what `buy` raises.
        """
        if not miss.shared:
            return buy()
        assert miss.ticket is not None
        digest = miss.ticket.digest
        if not request.stream:
            return purchase.share_plain(self._coalescer.announce(digest, request, deadline), buy)
        purchase.published = True
        share = partial(purchase.share_stream, buy)
        return _subscribe(purchase, self._coalescer.start_call(digest, request, deadline, share))

    def _ticket(self, request: CompletionRequest, tenant: Tenant, record: Record) -> Ticket:
        """Compute the keys of a request. May be called in a thread."""
        digest, policy = self._keys.digest(request, tenant), tenant.policy.cache
        ticket = Ticket(digest, tenant.team, request.controls.cache_tags, record.started_at, policy)
        if policy.semantic.enabled and (question := self._keys.question(request, tenant, self._semantic.name)):
            ticket.question, ticket.sharers, ticket.asker = question, scope(tenant), asker(request, tenant)
        return ticket

    def _exactly(self, ticket: Ticket, record: Record) -> bool:
        """Whether the answer to an identical request is stored, and this request may read it."""
        if not self._state.healthy:
            record.degraded.add("state")
            return False
        return self._exact.get(ticket.digest, record.started_at) is not None

    async def _by_meaning(
        self, ticket: Ticket, question: Question, request: CompletionRequest, tenant: Tenant, record: Record
    ) -> Hit | None:
        """The semantic hit for `question`; None if there is no hit. The vector of the question is stored in
        `ticket`."""
        if not self._state.healthy:
            return None
        if self._semantic.failed:
            record.degraded.add("embedder")
        look, ticket.near = await self._hit_checker.find(question, tenant, ticket.asker, record.traffic_class)
        ticket.vector = request.vector = look.vector
        if look.found is None:
            return None
        record.cache_score = round(look.found.score, 4)
        hit = await self._recall(look.found.digest, "semantic", request, record)
        if hit is not None:
            self._hit_checker.gave(look.found, hit.stored, request, tenant, record.traffic_class)
        return hit

    async def _recall(
        self, digest: bytes, result: CacheResult, request: CompletionRequest, record: Record
    ) -> Hit | None:
        """The stored answer with this digest. None if the state server has evicted the answer; then its entry is
        removed from the index."""
        try:
            stored = await self._find(digest)
        except StateUnavailable:
            record.degraded.add("state")
            return None
        if stored is None:
            return None
        self._counts[result] += 1
        self._exact.touch(digest)
        self._invalidation.remember(record.request_id, record.tenant.team, digest)
        record.cache, record.saved_pico = result, stored.cost_pico
        record.note("cache", result=result, backend=stored.backend, model=stored.model, score=record.cache_score)
        return Hit(Replayed(request, stored.completion), stored)

    async def _find(self, digest: bytes) -> Stored | None:
        entry = self._exact.get(digest, time.time())
        if entry is None:
            return None
        stored = self._write_behind.find(entry) or await self._bodies.get(entry, recall=self._log.current)
        if stored is None and self._exact.get(digest, 0.0) is entry:
            self._exact.remove(digest)
        return stored

    def _joined(self, join: Join, record: Record) -> Join:
        record.cache = "join"
        self._invalidation.remember(record.request_id, record.tenant.team, join.call.digest)
        record.note("cache", result="join", backend=join.call.paid.backend, model=join.call.paid.model)
        return join

    def _miss(
        self, record: Record, result: CacheResult, ticket: Ticket | None, control: str, *, shared: bool = False
    ) -> Miss:
        record.cache, record.cache_score = result, None
        if result in self._counts:
            self._counts[result] += 1
        if control == "only":
            raise CacheOnlyMiss(
                "No stored answer for this request, and x-thriftgate-cache: only asks for nothing else; "
                "leave the header out to have a backend answer."
            )
        return Miss(ticket, shared)

    # -- store -----------------------------------------------------------------------------------------------------

    def store(self, miss: Miss, answer: Answer, record: Record) -> None:
        """Store a complete answer that ended without an error. Does not wait. An answer that must not be stored is
        ignored."""
        ticket, attempt = miss.ticket, answer.attempt
        if ticket is None or attempt is None or attempt.usage is None:
            return
        policy = ticket.policy
        completion = None if doubtful(record, attempt) else keepable(answer, record.dialect)
        if completion is None or len(completion) > policy.max_answer_bytes:
            self._counts["unkept"] += 1
            return
        if not self._state.healthy:
            record.degraded.add("state")
            return
        place = self._write_behind.place(policy.ttl)
        if place is None:
            return
        question = ticket.question if answer.finish == "stop" else None
        now, cost_pico = time.time(), attempt.cost_pico
        vector = None if ticket.vector is None or question is None else pack(ticket.vector)
        entry = Entry(
            ticket.digest,
            ticket.team,
            ticket.tags,
            ticket.asked_at,
            now + policy.ttl,
            len(completion),
            None if vector is None else question,
            vector,
            place,
            cost_pico or 0,
            ticket.asker,
        )
        if not self._learn(entry, policy, now):
            return
        stored = Stored(completion, attempt.usage, cost_pico, attempt.backend.name, attempt.backend.model)
        self._write_behind.add(entry, stored)
        self._bodies.keep(ticket.digest, stored)
        self._counts["stored"] += 1
        if question is None:
            return
        if ticket.near is not None:
            self._hit_checker.missed(ticket.near, entry.digest, completion, record.dialect)
        if vector is not None:
            self._semantic.add(entry)
        elif self._semantic.available:
            self._meanings.spawn(self._mean(ticket, entry, question), "cache-meaning")
        else:
            self._pending.add(ticket, entry, question)

    async def _mean(self, ticket: Ticket, entry: Entry, question: Question, *, again: bool = True) -> None:
        """Compute the vector of the question to a stored answer, and add it to the semantic index. `again`: whether
        to try once more later if the vector cannot be computed now.
        """
        ticket.vector = await self._semantic.vector(question, ticket.sharers, urgent=False)
        if ticket.vector is not None and self._exact.get(entry.digest, time.time()) is entry:
            meant = entry._replace(question=question, vector=pack(ticket.vector))
            self._exact.replace(meant)
            self._semantic.add(meant)
            self._write_behind.add_vector(meant)
        elif ticket.vector is None and again:  # the embedder is busy
            self._pending.add(ticket, entry, question)

    def _learn(self, entry: Entry, policy: CachePolicy, now: float) -> bool:
        """Add an entry to the index, and delete the answers that are evicted to make room for it.

        Returns False if a flush covers the entry, or its answer is too large.
        """
        gone = self._exact.put(entry, now, policy.quota_answers, policy.quota_bytes)
        if gone is None:
            return False
        if gone:
            self._write_behind.discard(gone)
            return gone[-1] is not entry
        return True

    def _lost(self, entries: Iterable[Entry]) -> None:
        """Remove `entries` from this worker's index, because their answers did not reach the state server."""
        self._invalidation.apply(Gone([(entry.digest, entry.place) for entry in entries]))

    # -- forget ----------------------------------------------------------------------------------------------------

    async def flush(
        self,
        team: str,
        tag: str | None = None,
        older_than_s: float | None = None,
        dry_run: bool = False,
        prefix: str | None = None,
    ) -> int:
        """Delete the answers that `team` has stored, in every worker; an empty `team`: all teams. Returns the number of
        deleted answers. Raises StateUnavailable.

        `tag`, `prefix`: delete only answers with this tag, or with a tag that begins with `prefix`. `older_than_s`:
        minimum age in seconds. `dry_run`: count, but delete nothing.
        """
        flush = Flush(team, time.time() - (older_than_s or 0.0), tag, prefix)
        return len(await self._invalidation.flush(flush, dry_run=dry_run))

    async def wrong(self, request_id: str, team: str) -> None:
        """Delete a stored answer that a client reported as wrong. `request_id`: id of the request of `team` that got
        this answer from the cache. Raises StateUnavailable."""
        self._hit_checker.called_wrong(request_id, team)
        await self._invalidation.wrong(request_id, team)

    async def stored(self, digest: bytes) -> Stored | None:
        """The stored answer with this digest; None if there is none. Raises StateUnavailable."""
        return await self._find(digest)

    def entries(self) -> Iterator[Entry]:
        """All entries that this worker knows. The iterator is valid until the next change of the index."""
        return self._exact.entries()

    # -- follow the log --------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        await self._snapshots.restore(self._add_stored)
        leave_out()  # later garbage collections skip the entries that exist from the start
        await self._log.follow(self._apply, self._reset)

    def _apply(self, _: str, fields: dict[bytes, bytes]) -> None:
        if self._write_behind.own(name_of(fields)):
            return
        change = decode(fields)
        if isinstance(change, Judged):
            self._hit_checker.add_report(change)
        elif not isinstance(change, Batch):
            if isinstance(change, Wrong):
                self._hit_checker.called_wrong(change.request_id, change.team)
            self._invalidation.apply(change)
        elif change.epoch == self._state.epoch:
            for entry in change.entries:
                self._add_stored(entry)
            if not self._log.current:
                leave_out()

    def _add_stored(self, entry: Entry) -> None:
        """Called when another worker has stored the answer of `entry`. `entry` also lists the entries that were evicted
        for it."""
        self._exact.put(entry, time.time())
        if entry.vector is not None and self._exact.get(entry.digest, 0.0) is entry:
            self._semantic.add(entry)

    def _gone(self, entry: Entry) -> None:
        self._bodies.forget(entry.digest)
        self._write_behind.withdraw(entry)
        self._semantic.remove(entry)

    def _reset(self) -> None:
        log.warning("the state server lost its data; the cache begins anew")
        self._exact.clear()
        self._write_behind.clear()
        self._hit_checker.forget()

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_S)
            self._exact.expire(time.time())
            await self._semantic.tidy()
            await self._hit_checker.tell(self._log.append)
            await self._snapshots.tidy()

    def stats(self) -> dict[str, int | float | str]:
        return {
            **self._counts,
            **self._coalescer.stats(),
            **self._invalidation.stats(),
            "entries": len(self._exact),
            "bytes": self._exact.size,
            "evicted": self._exact.evicted,
            "recalled": self._bodies.recalled,
            **self._write_behind.stats(),
            **self._semantic.stats(),
            **self._hit_checker.stats(),
            **self._snapshots.stats(),
        }


async def _subscribe(purchase: Purchase, start: Awaitable[Answer]) -> None:
    purchase.subscriber = await start
