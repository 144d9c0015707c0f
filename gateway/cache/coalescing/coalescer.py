"""Coalesces identical requests. A later request subscribes to the call in progress instead of making a call of its
own."""

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
from gateway.cache.coalescing.shared_call import SharedCall
from gateway.cache.coalescing.source import Form
from gateway.cache.coalescing.subscriber import Subscriber
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

MOST_JOINS = 2
"""Maximum number of calls that one request joins. If a joined call fails before its first byte, the request may join
another request's call. After this number of failed calls, the request makes a call of its own, so that it does not wait
for a failing backend again and again."""


class Coalescer:
    """Finds calls in progress that answer an identical request.

    It searches in this worker, then in the other workers of this host. If the policy requires it, it also searches
    in other gateways on the same state server.
    """

    def __init__(
        self,
        state: State,
        delivered: Callable[[], Awaitable[None]],
        is_stored: Callable[[bytes], bool],
        stored: Callable[[bytes], Awaitable[Stored | None]],
        folder: Path | None = None,
    ) -> None:
        """`folder`: this host's locks and sockets; None: there is only one worker.

        `delivered()` returns when this worker's stored answers have reached the state server. `is_stored(digest)`:
        whether an answer is stored. `stored(digest)` returns this answer.
        """
        self._redis_locks = RedisLocks(state, delivered)
        self._host_locks = None if folder is None else HostLocks(folder)
        self._calls = SharedCalls(self._ended)
        self._peers = None if folder is None else Peers(folder, self._calls, stored)
        self._is_stored = is_stored
        self._claimed: set[bytes] = set()
        """Digests of requests for which `join` has taken the host lock, and whose call `announce` has not registered
        yet."""
        self._counts = {"joined": 0, "joined_in_vain": 0, "joined_neighbours": 0}

    async def open(self) -> None:
        """Open the locks and sockets. If the folder cannot be used, this worker shares no calls with other workers."""
        if self._host_locks is None or self._peers is None:
            return
        try:
            await asyncio.to_thread(self._host_locks.open)
            await self._peers.open()
            self._redis_locks.owner = self._host_locks.name
        except OSError as error:
            log.error("identical requests at two workers are answered twice, the data directory is unusable: %s", error)
            await self._close_host()

    async def aclose(self) -> None:
        await self._calls.aclose()
        await self._close_host()
        await self._redis_locks.aclose()

    async def _close_host(self) -> None:
        """Stop sharing calls with the other workers of this host."""
        locks, peers, self._host_locks, self._peers = self._host_locks, self._peers, None, None
        if peers is not None:
            await peers.aclose()
        if locks is not None:
            locks.close()

    @staticmethod
    def allowed(request: CompletionRequest, tenant: Tenant) -> bool:
        """Whether the request may share an answer in progress. The policy can forbid sharing.

        A request with its own limit (`x-thriftgate-max-usd`) shares none, because other requests have other limits.
        """
        return request.controls.max_usd is None and tenant.policy.cache.join != "none" and request.dialect in DIALECTS

    async def join(
        self, subscriber: Subscriber, digest: bytes, request: CompletionRequest, deadline: float, *, claim: bool
    ) -> Join | None:
        """The answer in progress that `subscriber` reads. Returns after its first bytes. If the call fails before
        its first bytes, another call in progress may be joined. None if this request must make the call. `claim`:
        whether calls of other workers may be joined too."""
        for joined in range(1, MOST_JOINS + 1):
            if join := await self._begin(subscriber, request):
                self._counts["joined"] += 1
                return join
            self._counts["joined_in_vain"] += 1
            following = None if joined == MOST_JOINS else self.subscribe(digest, request, deadline, claim=claim)
            if following is None:
                return None
            subscriber = following
        return None

    def subscribe(
        self, digest: bytes, request: CompletionRequest, deadline: float, *, claim: bool
    ) -> Subscriber | None:
        """A subscriber to the call in progress for an identical request; None: this request makes the call.

        `claim`: whether to search other workers too. If none has such a call, this worker's call is announced to them,
        so that they can join it.
        """
        shared = self._calls.find(digest, deadline, None if self._peers is None else form(request))
        if shared is not None:
            return Subscriber(shared, silent=not (shared.form == form(request) and _shares_bytes(request)))
        if not claim or self._host_locks is None:
            return None
        owner = self._claim(self._host_locks, digest)
        return None if owner is None else self._subscribe_to_peer(owner, digest, request, deadline)

    async def _begin(self, subscriber: Subscriber, request: CompletionRequest) -> Join | None:
        """Wait for the first bytes of the answer. Returns None if the call has failed.

        A subscriber can need another form of answer than the call gives (stream or plain), or an answer id of its own.
        Then this method waits for the whole answer.
        """
        if not await subscriber.begin():
            return None
        shared = subscriber.shared
        assert shared.answer is not None
        if not subscriber.silent:
            return Join(subscriber, shared)
        completion = shared.answer.completion() if shared.answer.complete else None
        await subscriber.aclose()
        return None if completion is None else Join(Replayed(request, completion), shared)

    async def wait_for_other_gateway(self, digest: bytes, deadline: float) -> bool:
        """Take the lock that all gateways share, or wait for the gateway that holds it. `deadline`: loop time.

        Returns True if this worker waited. If the other gateway stored an answer, this worker then knows the answer.
        """
        return not await self._redis_locks.take(digest, deadline)

    def announce(self, digest: bytes, request: CompletionRequest, deadline: float) -> SharedCall:
        """Register a new call for this request. From now on, other requests may join the call."""
        shared = self._calls.add(digest, form(request), deadline)
        if digest in self._claimed:
            self._claimed.remove(digest)
            shared.claimed = True
        return shared

    async def start_call(
        self,
        digest: bytes,
        request: CompletionRequest,
        deadline: float,
        work: Callable[[SharedCall], Awaitable[None]],
    ) -> Answer:
        """Run `work`, which publishes an answer that other requests may join. Returns the answer when its first
        bytes have arrived.

        Raises the errors of `work` that occur before the first bytes.
        """
        subscriber = self._calls.start(self.announce(digest, request, deadline), work)
        if not await subscriber.begin():
            assert subscriber.shared.error is not None
            raise subscriber.shared.error
        return subscriber

    # -- other workers of this host ------------------------------------------------------------------------------------

    def _claim(self, host_locks: HostLocks, digest: bytes) -> int | None:
        """Decide which worker makes the call. None: this worker; otherwise that worker's process id."""
        owner = host_locks.take(digest)
        if owner is None:
            self._claimed.add(digest)
        return owner

    def _ended(self, shared: SharedCall) -> None:
        """Release the locks of a call that other requests can no longer join. If the answer was stored, the host
        lock is released later, when the other workers know the answer.
        """
        self._redis_locks.release(shared.digest)
        if shared.claimed and self._host_locks is not None:
            if shared.over and self._is_stored(shared.digest):
                self._host_locks.release_later(shared.digest)
            else:
                self._host_locks.release(shared.digest)
        shared.claimed = False

    def _subscribe_to_peer(
        self, process: int, digest: bytes, request: CompletionRequest, deadline: float
    ) -> Subscriber:
        """A subscriber to the call that another worker makes. Further requests in this worker can join it."""
        assert self._peers is not None
        self._counts["joined_neighbours"] += 1
        shared = self._calls.add(digest, form(request), deadline, remote=True)
        live = _shares_bytes(request)
        fetch = partial(self._peers.fetch, process, request=request, live=live, deadline=deadline)
        return self._calls.start(shared, fetch)

    def stats(self) -> dict[str, int | float | str]:
        return {"under_way": len(self._calls), "under_way_bytes": self._calls.bytes, **self._counts}


def form(request: CompletionRequest) -> Form:
    """The form of answer that the request needs: stream or plain, and with or without the usage event."""
    return request.stream, request.stream and request.wants_usage


def _shares_bytes(request: CompletionRequest) -> bool:
    """Whether all subscribers get the same bytes. False for Responses, where each answer has its own id."""
    return not FACTS[request.dialect].answers_have_ids
