"""Coalesces identical requests: a later one subscribes to the call in progress instead of making its own."""

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
"""Number of joined calls that may fail before their first byte. After that, the request makes its own call, so that it
does not wait for a failing backend again and again."""


class Coalescer:
    """Finds calls in progress.

    It looks in this worker (`SharedCalls`) and in the other workers of this host: `HostLocks` name the worker, and
    `Peers` fetch its answer. If the policy asks for it, it also looks in all gateways on one state server
    (`RedisLocks`).
    """

    def __init__(
        self,
        state: State,
        delivered: Callable[[], Awaitable[None]],
        is_stored: Callable[[bytes], bool],
        stored: Callable[[bytes], Awaitable[Stored | None]],
        folder: Path | None = None,
    ) -> None:
        """`delivered()` returns when all answers stored here have reached the state server. `is_stored(digest)` tells
        whether an answer is stored, and `stored(digest)` returns it. `folder` contains the locks and sockets of this
        host's workers; None: there is only one worker."""
        self._redis_locks = RedisLocks(state, delivered)
        self._host_locks = None if folder is None else HostLocks(folder)
        self._calls = SharedCalls(self._ended)
        self._peers = None if folder is None else Peers(folder, self._calls, stored)
        self._is_stored = is_stored
        self._claimed: set[bytes] = set()
        """Digests whose host lock `join` has taken for a call that has not been announced yet."""
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
        """Whether the request may share an answer in progress. Under `max_usd_per_request` the answer may be cut short,
        so it is not shared with other teams, which have other limits."""
        policy = tenant.policy
        if policy.max_usd_per_request is not None and policy.cache.scope in ("organisation", "public"):
            return False
        return policy.cache.join != "none" and request.dialect in DIALECTS

    async def join(self, digest: bytes, request: CompletionRequest, deadline: float, *, claim: bool) -> Join | None:
        """The answer in progress to an identical request, after its first bytes; None if there is none.

        `claim`: if there is none, take the host lock, so that the other workers join the call that this worker will
        make.
        """
        for _ in range(MOST_JOINS):
            subscriber = self._subscribe(digest, request, deadline, claim=claim)
            if subscriber is None:
                return None
            if join := await self._begin(subscriber, request):
                self._counts["joined"] += 1
                return join
            self._counts["joined_in_vain"] += 1
        return None

    def _subscribe(
        self, digest: bytes, request: CompletionRequest, deadline: float, *, claim: bool
    ) -> Subscriber | None:
        """A subscriber to the call in this worker or, with `claim`, in another worker. None: this request makes the
        call."""
        shared = self._calls.find(digest, deadline, form(request))
        if shared is not None:
            return Subscriber(shared, silent=not (shared.form == form(request) and _shares_bytes(request)))
        owner = self._claim(digest) if claim else None
        return None if owner is None else self._subscribe_to_peer(owner, digest, request, deadline)

    async def _begin(self, subscriber: Subscriber, request: CompletionRequest) -> Join | None:
        """Wait for the answer's first bytes. Wait for its end instead if it must be replayed in another form or with
        another id. None: the call failed."""
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
        """Take the lock that all gateways on this state server share, or wait until the gateway that holds it has
        finished.

        Returns whether it waited. After a wait, this gateway knows the answer if it was stored. `deadline` is loop
        time.
        """
        return not await self._redis_locks.take(digest, deadline)

    def announce(self, digest: bytes, request: CompletionRequest, deadline: float) -> SharedCall:
        """Register a new call for this request, which others may join from now on."""
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
        """Run `work`, which publishes an answer that others may join. Returns it when its first bytes are in hand.

        Requests can join before the first await. Raises what `work` raises before the first bytes.
        """
        subscriber = self._calls.start(self.announce(digest, request, deadline), work)
        if not await subscriber.begin():
            assert subscriber.shared.error is not None
            raise subscriber.shared.error
        return subscriber

    # -- other workers of this host ------------------------------------------------------------------------------------

    def _claim(self, digest: bytes) -> int | None:
        """None: this worker makes the call. Else the process id of the worker that makes it."""
        if self._host_locks is None:
            return None
        owner = self._host_locks.take(digest)
        if owner is None:
            self._claimed.add(digest)
        return owner

    def _ended(self, shared: SharedCall) -> None:
        """Release the locks of a call that can no longer be joined.

        If the answer was stored, the host lock is released later: until the other workers know the answer, they request
        it from this worker.
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
        """A new shared call that fetches the other worker's answer. Further requests of this worker can join it."""
        assert self._peers is not None
        self._counts["joined_neighbours"] += 1
        shared = self._calls.add(digest, form(request), deadline, remote=True)
        live = _shares_bytes(request)
        fetch = partial(self._peers.fetch, process, request=request, live=live, deadline=deadline)
        return self._calls.start(shared, fetch)

    def stats(self) -> dict[str, int | float | str]:
        return {"under_way": len(self._calls), "under_way_bytes": self._calls.bytes, **self._counts}


def form(request: CompletionRequest) -> Form:
    """The form of the answer that the request needs."""
    return request.stream, request.stream and request.wants_usage


def _shares_bytes(request: CompletionRequest) -> bool:
    """Whether all subscribers get the same bytes. In the Responses dialect each answer has its own id."""
    return not FACTS[request.dialect].answers_have_ids
