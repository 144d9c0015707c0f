"""Drains backends. A drained backend gets no new requests, while its calls in progress continue. Each drain has an
expiry time.

Drains that an operator or a spot notice starts are shared by all workers through Redis. Drains that a worker starts
after an error (status 503, an unreachable server) apply to that worker only. If Redis is unavailable, the last known
drains apply until they expire.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

import orjson

from gateway.errors import StateUnavailable
from gateway.runtime.tasks import Tasks, repeat
from gateway.state.redis.connection import State

log = logging.getLogger(__name__)

FOLLOW_S = 1.0
"""Maximum seconds until all workers know a new drain."""
USUAL_S = 3600.0
LONGEST_S = 7 * 86400.0


class BackendDrains:
    """The drained backends of one worker, each with an expiry time (Unix seconds) and a reason."""

    def __init__(self, state: State | None = None, *, clock: Callable[[], float] = time.time) -> None:
        """`state`: the Redis connection through which drains are shared; None: drains are not shared (in a command-line
        process)."""
        self._state, self._clock = state, clock
        self._shared: dict[str, tuple[float, str]] = {}
        self._seen: dict[str, tuple[float, str]] = {}
        self._tasks = Tasks()

    async def open(self) -> None:
        """Start the background task that reads from the state server which backends are drained for all workers."""
        if self._state is not None:
            self._tasks.spawn(self._follow(self._state), "drained backends")

    async def aclose(self) -> None:
        await self._tasks.aclose()

    @property
    def any(self) -> bool:
        """Whether any drain is recorded, even one that has already expired."""
        return bool(self._shared or self._seen)

    def reason(self, backend: str) -> str:
        """The reason why `backend` gets no new requests now; empty if `backend` is not drained."""
        for known in (self._shared, self._seen):
            if backend in known:
                until, why = known[backend]
                if until > self._clock():
                    return f"drained: {why}"
        return ""

    def see(self, backend: str, seconds: float, why: str) -> None:
        """Drain `backend` on this worker only, for `seconds`. `why`: the reason for the drain."""
        if not self.reason(backend):
            log.warning("backend %s gets no new requests for %.0f s: %s", backend, seconds, why)
        self._seen[backend] = self._clock() + seconds, why

    def over(self, backend: str, why: str) -> None:
        """End this worker's drain of `backend` that has the reason `why`."""
        if backend in self._seen and self._seen[backend][1] == why:
            del self._seen[backend]
            log.info("backend %s gets requests again", backend)

    async def drain(self, backend: str, seconds: float, why: str) -> float:
        """Drain `backend` on all workers. Returns the expiry time in Unix seconds. Raises StateUnavailable."""
        until = self._clock() + min(seconds, LONGEST_S)
        self._shared[backend] = until, why
        log.info("backend %s is drained for %.0f s: %s", backend, seconds, why)
        if self._state is not None:
            await self._state.call("HSET", self._key(self._state), backend, orjson.dumps([until, why]))
        return until

    async def listing(self) -> dict[str, tuple[float, str]]:
        """The drains that all workers share now: backend → (expiry time in Unix seconds, reason). Raises
        StateUnavailable."""
        if self._state is not None:
            await self._read(self._state)
        return dict(self._shared)

    async def undrain(self, backend: str) -> bool:
        """End the drain of `backend` on all workers. Returns whether `backend` was drained. Raises StateUnavailable."""
        known = bool(self.reason(backend))
        self._shared.pop(backend, None)
        self._seen.pop(backend, None)
        if self._state is not None:
            gone = await self._state.call("HDEL", self._key(self._state), backend)
            known = known or bool(gone)
        return known

    async def _follow(self, state: State) -> None:
        await repeat(partial(self._read, state), FOLLOW_S, _troubled, StateUnavailable)

    async def _read(self, state: State) -> None:
        entries = await state.call("HGETALL", self._key(state))
        now, found, over = self._clock(), {}, []
        for name, value in zip(entries[::2], entries[1::2], strict=True):
            try:
                until, why = orjson.loads(value)
                found[str(name, "utf-8")] = float(until), str(why)
            except (ValueError, TypeError):
                over.append(name)
                continue
            if float(until) <= now:
                over.append(name)
        if over:
            await state.call("HDEL", self._key(state), *over)
        self._shared = {name: known for name, known in found.items() if known[0] > now}

    def _key(self, state: State) -> str:
        return state.key("drained")


def _troubled(_: Exception) -> None:
    log.debug("drains cannot be read; the last known ones apply")
