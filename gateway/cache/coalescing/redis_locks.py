"""Redis keys that tell which gateway answers a request; the owner renews them."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable

from gateway.errors import StateUnavailable
from gateway.runtime.tasks import Tasks
from gateway.state.redis.connection import State

LEASE_S = 3.0
"""A gateway that dies keeps others waiting for no longer."""
LOOK_S = 0.05
PATIENCE_S = 120.0
"""Longest wait (seconds) for another gateway's answer; then the request makes its own call."""
KNOWN_S = 0.3
"""Seconds within which every follower of the index log knows an answer that was stored before its key was deleted."""


class RedisLocks:
    """For policies that ask for it: one round trip before each call, where a worker's own memory knows nothing.

    Whoever finds a key waits until it is gone. Then the answer is stored, or it was none to be kept. A server that is
    away marks nothing, and everybody asks for itself.
    """

    def __init__(self, state: State, delivered: Callable[[], Awaitable[None]]) -> None:
        """`delivered()` returns when all that was stored here so far is with the server."""
        self._state, self._delivered = state, delivered
        self.owner = secrets.token_hex(8)
        """The same for workers that find each other by other means."""
        self._held: dict[bytes, float] = {}
        """Until when (loop time) each is renewed at most."""
        self._tasks = Tasks()
        self._renewing = False

    async def aclose(self) -> None:
        await self._tasks.aclose()

    def _key(self, digest: bytes) -> str:
        return self._state.key("join", digest.hex())

    async def take(self, digest: bytes, deadline: float) -> bool:
        """True: this worker makes the call, at once or because the state server does not answer. False: another worker
        did, and has finished. Waits until `deadline` (loop time) at most.

        Waits no longer than until `deadline` (loop time).
        """
        key, loop = self._key(digest), asyncio.get_running_loop()
        patient_until, waited = min(deadline, loop.time() + PATIENCE_S), False
        try:
            taken, owner = await self._state.pipeline(
                (("SET", key, self.owner, "NX", "PX", int(LEASE_S * 1000)), ("GET", key))
            )
            if taken:
                self._hold(digest, deadline)
            while owner is not None and owner != self.owner.encode() and loop.time() < patient_until:
                await asyncio.sleep(LOOK_S)
                waited, owner = True, await self._state.call("GET", key)
        except StateUnavailable:
            return True
        if waited:
            await asyncio.sleep(KNOWN_S)
        return not waited

    def _hold(self, digest: bytes, deadline: float) -> None:
        self._held[digest] = deadline
        if not self._renewing:
            self._renewing = True
            self._tasks.spawn(self._renew(), "markers")

    async def _renew(self) -> None:
        try:
            while self._held:
                await asyncio.sleep(LEASE_S / 3)
                now, lease_ms = asyncio.get_running_loop().time(), int(LEASE_S * 1000)
                self._held = {digest: until for digest, until in self._held.items() if until > now}
                try:
                    await self._state.pipeline([("PEXPIRE", self._key(each), lease_ms) for each in self._held])
                except StateUnavailable:
                    continue
        finally:
            self._renewing = False

    def release(self, digest: bytes) -> None:
        """The call has ended: let waiting workers look for the answer, once it is stored."""
        if digest in self._held:
            self._held.pop(digest)
            self._tasks.spawn(self._release_pieces(digest), "marker")

    async def _release_pieces(self, digest: bytes) -> None:
        try:
            await self._delivered()
        finally:
            with contextlib.suppress(StateUnavailable):  # then it ends by itself
                await self._state.call("DEL", self._key(digest))
