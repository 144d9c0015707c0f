"""Coalesces identical requests: a later one subscribes to the call in progress instead of buying its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from gateway.cache.coalescing.host_locks import HostLocks
from gateway.cache.coalescing.peers import Peers
from gateway.cache.coalescing.redis_locks import RedisLocks
from gateway.cache.coalescing.registry import SharedCalls
from gateway.cache.coalescing.shared_call import Form, SharedCall, Subscriber
from gateway.cache.result import Join
from gateway.cache.store.bodies import Stored
from gateway.dialects.clients import DIALECTS
from gateway.dialects.facts import FACTS
from gateway.dialects.replay import Replayed
from gateway.domain.answer import Answer
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Tenant
from gateway.state.redis.connection import State

log = logging.getLogger(__name__)

LINGER_S = 0.5
"""Seconds that a claim outlives its answer: by then the other workers have read of it in the index log."""
MOST_JOINS = 2
"""After waiting in vain for this many answers of other calls, a request makes its own call, so that a dead backend is
not waited for again and again."""


class Coalescer:
    """The answers under way of one worker, of its peers on this host, and where a policy asks for it, of all
    gateways on one state server."""

    def __init__(
        self,
        state: State,
        delivered: Callable[[], Awaitable[None]],
        knows: Callable[[bytes], bool],
        stored: Callable[[bytes], Awaitable[Stored | None]],
        folder: Path | None = None,
    ) -> None:
        """`delivered()` returns when what was stored here is with the state server. `knows(digest)`: is it stored?
        `stored(digest)` is what is. `folder`: where workers of this host find each other; None: there is but one."""
        self._redis_locks = RedisLocks(state, delivered)
        self._host_locks = None if folder is None else HostLocks(folder)
        self._calls = SharedCalls(self._ended)
        self._peers = None if folder is None else Peers(folder, self._calls, stored)
        self._knows = knows
        self._claimed: set[bytes] = set()
        self._lingering: dict[bytes, float] = {}
        """Claims of what has ended → when each is let go (loop time), the first one first."""
        self._releasing: asyncio.TimerHandle | None = None
        self._counts = {"joined": 0, "joined_in_vain": 0, "joined_neighbours": 0}

    async def open(self) -> None:
        """A folder that refuses leaves this worker alone."""
        if self._host_locks is None or self._peers is None:
            return
        try:
            await asyncio.to_thread(self._host_locks.open)
            await self._peers.open()
            self._redis_locks.owner = self._host_locks.name
        except OSError as error:
            log.error("equal requests at two workers are answered twice, the data directory refuses: %s", error)
            await self._part()

    async def aclose(self) -> None:
        await self._calls.aclose()
        await self._part()
        await self._redis_locks.aclose()

    async def _part(self) -> None:
        """From the peers."""
        claims, peers, self._host_locks, self._peers = self._host_locks, self._peers, None, None
        if self._releasing is not None:
            self._releasing.cancel()
        if peers is not None:
            await peers.aclose()
        if claims is not None:
            claims.close()

    @staticmethod
    def allowed(request: CompletionRequest, tenant: Tenant) -> bool:
        """May it share an answer under way?"""
        return tenant.policy.cache.join != "none" and request.dialect in DIALECTS

    async def join(self, digest: bytes, request: CompletionRequest, deadline: float, *, claim: bool) -> Join | None:
        """The answer in progress to the same question, with its first bytes, or None. `claim`: if there is none, tell
        the other workers that this one makes the call.

        `claim`: when there is none, the other workers are told that this one will ask for it.
        """
        for _ in range(MOST_JOINS):
            shared = self._calls.find(digest, deadline, form(request))
            if shared is not None:
                subscriber = Subscriber(shared, silent=not (shared.form == form(request) and _alike(request)))
            elif not claim or (peer := self._claim(digest)) is None:
                return None
            else:
                subscriber = self._visit(peer, digest, request, deadline)
            if found := await self._follow(subscriber, request):
                self._counts["joined"] += 1
                return found
            self._counts["joined_in_vain"] += 1
        return None

    async def elsewhere(self, digest: bytes, deadline: float) -> bool:
        """Tell all gateways on this state server that we ask for it, or wait for the one that does already.

        True: one did, and has ended; what it stored is known here.
        """
        return not await self._redis_locks.take(digest, deadline)

    async def _follow(self, subscriber: Subscriber, request: CompletionRequest) -> Join | None:
        """A request that needs another form of the answer, or an id of its own, waits for its end and gets it
        replayed."""
        if not await subscriber.begin():
            return None
        shared = subscriber.shared
        assert shared.answer is not None
        if not subscriber.silent:
            return Join(subscriber, shared)
        completion = shared.answer.completion() if shared.answer.complete else None
        await subscriber.aclose()
        return None if completion is None else Join(Replayed(request, completion), shared)

    def announce(self, digest: bytes, request: CompletionRequest, deadline: float) -> SharedCall:
        """A call for this request, which others may join from now on."""
        claimed = digest in self._claimed
        if claimed:
            self._claimed.remove(digest)
        return self._calls.announce(digest, form(request), deadline, claimed=claimed)

    async def start_call(
        self,
        digest: bytes,
        request: CompletionRequest,
        deadline: float,
        work: Callable[[SharedCall], Awaitable[None]],
    ) -> Answer:
        """Have `work` bring an answer that others may join. Returns it with its first bytes in hand, or raises what
        kept it from coming. Until the first await it is as good as done: who asks after that finds it under way.
        """
        subscriber = self._calls.launch(self.announce(digest, request, deadline), work)
        if not await subscriber.begin():
            assert subscriber.shared.error is not None
            raise subscriber.shared.error
        return subscriber

    # -- peers ----------------------------------------------------------------------------------------------------

    def _claim(self, digest: bytes) -> int | None:
        """None: it is ours to ask for. Else the process that does."""
        if self._host_locks is None:
            return None
        owner = self._host_locks.take(digest)
        if owner is None:
            self._claimed.add(digest)
            self._lingering.pop(digest, None)
        return owner

    def _ended(self, shared: SharedCall) -> None:
        """It can no longer be joined: whoever asks next may ask a backend. Of a whole answer the peers have to
        hear first; until then they ask this worker for it."""
        self._redis_locks.release(shared.digest)
        if shared.claimed and self._host_locks is not None:
            if shared.over and self._knows(shared.digest):
                self._linger(shared.digest)
            else:
                self._host_locks.release(shared.digest)
        shared.claimed = False

    def _linger(self, digest: bytes) -> None:
        loop = asyncio.get_running_loop()
        self._lingering[digest] = loop.time() + LINGER_S
        if self._releasing is None:
            self._releasing = loop.call_later(LINGER_S, self._release, loop)

    def _release(self, loop: asyncio.AbstractEventLoop) -> None:
        now, due = loop.time(), []
        for digest, at in self._lingering.items():
            if at > now:
                break
            due.append(digest)
        for digest in due:
            del self._lingering[digest]
            if self._host_locks is not None:
                self._host_locks.release(digest)
        self._releasing = loop.call_later(LINGER_S, self._release, loop) if self._lingering else None

    def _visit(self, process: int, digest: bytes, request: CompletionRequest, deadline: float) -> Subscriber:
        """A shared call of our own that brings the peer's answer, which others here can join in turn."""
        assert self._peers is not None
        self._counts["joined_neighbours"] += 1
        fetch = partial(self._peers.fetch, process, request=request, live=_alike(request), deadline=deadline)
        return self._calls.join_remote(digest, form(request), deadline, fetch)

    def stats(self) -> dict[str, int | float | str]:
        return {"under_way": len(self._calls), "under_way_bytes": self._calls.bytes, **self._counts}


def form(request: CompletionRequest) -> Form:
    return request.stream, request.stream and request.wants_usage


def _alike(request: CompletionRequest) -> bool:
    """Is the answer the same for all subscribers? A Response has an id of its own for each."""
    return not FACTS[request.dialect].answers_have_ids
