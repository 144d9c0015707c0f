"""Drains backends: no new requests, calls in progress end. A drain ends by itself.

What a person or a machine's notice decides is shared by all workers through the state; what one worker sees for itself
(a 503, a server that is gone) is its own. While the state is away, what was last known holds, up to its end.
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
"""All workers know of a drain after this long."""
USUAL_S = 3600.0
LONGEST_S = 7 * 86400.0


class BackendDrains:
    """Backend → until when (Unix seconds), and why. One per worker."""

    def __init__(self, state: State | None = None, *, clock: Callable[[], float] = time.time) -> None:
        """`state` None: this process alone, as in a command."""
        self._state, self._clock = state, clock
        self._shared: dict[str, tuple[float, str]] = {}
        self._seen: dict[str, tuple[float, str]] = {}
        self._tasks = Tasks()

    async def open(self) -> None:
        if self._state is not None:
            self._tasks.spawn(self._follow(self._state), "drained backends")

    async def aclose(self) -> None:
        await self._tasks.aclose()

    @property
    def any(self) -> bool:
        return bool(self._shared or self._seen)

    def reason(self, backend: str) -> str:
        """Why it gets no new requests now; empty when it does."""
        for known in (self._shared, self._seen):
            if backend in known:
                until, why = known[backend]
                if until > self._clock():
                    return f"drained: {why}"
        return ""

    def see(self, backend: str, seconds: float, why: str) -> None:
        """This worker saw for itself that `backend` wants no requests for so long."""
        if not self.reason(backend):
            log.warning("backend %s gets no new requests for %.0f s: %s", backend, seconds, why)
        self._seen[backend] = self._clock() + seconds, why

    def over(self, backend: str, why: str) -> None:
        """What this worker saw for this reason is over."""
        if backend in self._seen and self._seen[backend][1] == why:
            del self._seen[backend]
            log.info("backend %s gets requests again", backend)

    async def drain(self, backend: str, seconds: float, why: str) -> float:
        """For all workers → until when. Raises StateUnavailable."""
        until = self._clock() + min(seconds, LONGEST_S)
        self._shared[backend] = until, why
        log.warning("backend %s is drained for %.0f s: %s", backend, seconds, why)
        if self._state is not None:
            await self._state.call("HSET", self._key(self._state), backend, orjson.dumps([until, why]))
        return until

    async def undrain(self, backend: str) -> bool:
        """For all workers → was it drained, as far as this one knows? Raises StateUnavailable."""
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
        told = await state.call("HGETALL", self._key(state))
        now, found, over = self._clock(), {}, []
        for name, value in zip(told[::2], told[1::2], strict=True):
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
    log.debug("drains cannot be read; the last ones hold")
