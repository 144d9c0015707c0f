"""Keys in Redis that show which gateway makes the call for a request. The gateway renews its key until the call
ends."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable

from gateway.errors import StateUnavailable
from gateway.runtime.tasks import Tasks
from gateway.state.redis.connection import State

LEASE_S = 3.0
"""Time to live of a key, in seconds. It limits how long other gateways wait for a gateway that has died."""
POLL_S = 0.05
PATIENCE_S = 120.0
"""Maximum seconds that a request waits for the answer of another gateway. After that, the request makes a call of its
own."""
KNOWN_S = 0.3
"""Seconds to wait after a key was deleted. By then, every reader of the index log knows the answer."""


class RedisLocks:
    """Locks that all gateways share, for policies with `cache.join: everywhere`. A call needs one more round trip to
    the state server. While this server does not answer, there are no locks."""

    def __init__(self, state: State, delivered: Callable[[], Awaitable[None]]) -> None:
        """`delivered()`: returns when all answers that were stored here have reached the state server."""
        self._state, self._delivered = state, delivered
        self.owner = secrets.token_hex(8)
        """The value of the keys. All workers of one host use the same value, because the host locks coordinate these
        workers."""
        self._held: dict[bytes, float] = {}
        """Digest → loop time after which the key of this digest is no longer renewed."""
        self._tasks = Tasks()
        self._renewing = False

    async def aclose(self) -> None:
        await self._tasks.aclose()

    def _key(self, digest: bytes) -> str:
        return self._state.key("join", digest.hex())

    async def take(self, digest: bytes, deadline: float) -> bool:
        """Wait for the lock of `digest`, at most until `deadline` (loop time). True: this host must make the call.
        False: another gateway made the call and has finished."""
        key, loop = self._key(digest), asyncio.get_running_loop()
        give_up_at, waited = min(deadline, loop.time() + PATIENCE_S), False
        try:
            taken, owner = await self._state.pipeline(
                (("SET", key, self.owner, "NX", "PX", int(LEASE_S * 1000)), ("GET", key))
            )
            if taken:
                self._hold(digest, deadline)
            while owner is not None and owner != self.owner.encode() and loop.time() < give_up_at:
                await asyncio.sleep(POLL_S)
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
            self._tasks.spawn(self._renew(), "renew redis locks")

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
        """Delete the key of a call that has ended. The key is deleted after the answer has reached the state server."""
        if digest in self._held:
            self._held.pop(digest)
            self._tasks.spawn(self._delete_key(digest), "release redis lock")

    async def _delete_key(self, digest: bytes) -> None:
        try:
            await self._delivered()
        finally:
            with contextlib.suppress(StateUnavailable):  # if the key cannot be deleted, it expires by itself
                await self._state.call("DEL", self._key(digest))
