"""Hedging: if a stream starts slowly, a second call is made in parallel. The call that begins to answer first is
served, and the other is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from gateway.backends.attempts import HEDGE, Attempts, CallContext
from gateway.backends.failures import together
from gateway.backends.relay import Relayed, Whole
from gateway.domain.backend import Backend
from gateway.domain.routing.route import Route
from gateway.errors import BackendRefused, DeadlineExceeded, GatewayError, LedgerUnavailable

_MOST_SAVED = 5.0
"""Maximum credit of a team. One second attempt costs 1."""
_FINAL = (BackendRefused, DeadlineExceeded, LedgerUnavailable)
"""Errors that would also occur with another backend."""


class Hedges:
    """Starts second attempts for slow streams. Each worker has one instance, which stores the credit of each team for
    second attempts."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._earned: dict[str, float] = {}

    async def answer(self, route: Route, call_context: CallContext) -> Relayed | Whole:
        """Call the backends of `route` in order and return the first answer that begins. If the first backend is slow,
        start a second attempt in parallel. Raises the errors of `Attempts.first_of`.

        Slow means: the wait for the first token is longer than in 95 % of the backend's recent streams. The policy's
        `hedging.share` limits the share of streams with a second attempt.
        """
        tenant = call_context.record.tenant
        earned = min(self._earned.get(tenant.team, 0.0) + tenant.policy.hedging.share, _MOST_SAVED)
        self._earned[tenant.team] = earned
        slow_after_s = self._attempts.health(route.backends[0]).slow_after_s
        if slow_after_s is None or earned < 1:
            return await self._attempts.first_of(route.backends, call_context)
        race = _Race(self._attempts, replace(call_context, turn=asyncio.Lock()), partial(self._spend, tenant.team))
        return await race.run(route, slow_after_s)

    def _spend(self, team: str) -> bool:
        """Take 1 from the team's credit for second attempts. If the credit is less than 1, takes nothing and returns
        False."""
        earned = self._earned[team] >= 1
        self._earned[team] -= earned
        return earned


class _Race:
    """The first attempt of one request and, if the first attempt is slow, the second attempt."""

    def __init__(self, attempts: Attempts, call_context: CallContext, spend: Callable[[], bool]) -> None:
        self._attempts, self._call_context, self._spend = attempts, call_context, spend
        self._won: Relayed | Whole | None = None
        self._begun: list[tuple[CallContext, Relayed | Whole]] = []
        self._errors: list[GatewayError] = []

    async def run(self, route: Route, slow_after_s: float) -> Relayed | Whole:
        """Return the answer that begins first. The other attempt is cancelled, and its entry in the journal gets the
        kind `hedge`."""
        backends = route.backends
        try:
            tried = await self._raced(route, slow_after_s)
            if self._begun:
                self._won = self._begun[0][1]
            else:
                self._won = await self._rest([backend for backend in backends if backend not in tried])
        finally:
            for call_context, answer in self._begun:
                if answer is not self._won:
                    call_context.kind = HEDGE
                    await self._attempts.drop(call_context, answer, "interrupted", HEDGE)
        if len(self._call_context.record.attempts) > 1:
            self._call_context.hold.follow(self._won.attempt)
        return self._won

    async def _raced(self, route: Route, slow_after_s: float) -> list[Backend]:
        """Run until one attempt has begun or both have failed. Returns the backends that were called."""
        backends = route.backends
        tried = [backends[0]]
        running: dict[asyncio.Task[None], CallContext] = {}
        async with asyncio.TaskGroup() as group:

            def start(backend: Backend) -> None:
                call_context = replace(self._call_context)
                running[group.create_task(self._call(backend, call_context, alone=len(backends) == 1))] = call_context

            start(backends[0])
            await asyncio.wait(running, timeout=slow_after_s)
            if not self._begun and not self._errors and (spare := self._spare(route)) and self._spend():
                self._attempts.totals.hedged += 1
                self._call_context.record.note("hedging", backend=spare.name, after_ms=round(slow_after_s * 1000, 3))
                tried.append(spare)
                start(spare)
            while not self._begun and (going := [task for task in running if not task.done()]):
                await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
            for task, call_context in running.items():
                if not task.done():
                    call_context.kind = HEDGE
                    task.cancel()
        return tried

    async def _call(self, backend: Backend, call_context: CallContext, *, alone: bool) -> None:
        try:
            answer = await self._attempts.first_of((backend,), call_context, last_resort=alone)
        except GatewayError as error:
            self._errors.append(error)
        else:
            self._begun.append((call_context, answer))

    async def _rest(self, backends: Sequence[Backend]) -> Relayed | Whole:
        """Call the remaining backends. If an earlier error means that they would fail too, raises this error without a
        call."""
        final = next((error for error in self._errors if isinstance(error, _FINAL)), None)
        if final is not None or not backends:
            raise final or together(self._errors)
        return await self._attempts.first_of(backends, self._call_context)

    def _spare(self, route: Route) -> Backend | None:
        """The backend for the second attempt: the next available backend of the route. If no other is available, the
        first backend again. None if the first backend is not available either."""
        for backend in (*route.backends[1:], route.backends[0]):
            if _as_good(backend, route) and self._attempts.health(backend).state().available:
                return backend
        return None


def _as_good(backend: Backend, route: Route) -> bool:
    """Whether `backend` may answer although the first backend has not failed. Some backends may serve only after
    failures, such as those above the price ceiling."""
    if backend.name in route.above and backend is not route.backends[0]:
        return False
    if route.reference is None or backend.same_model(route.backends[0]):
        return True
    if route.observed is not None:
        return False
    if backend is route.reference:
        return True
    adequacy = next((each.adequacy for each in route.considered if each.backend == backend.name), None)
    return adequacy is not None and route.quality is not None and adequacy >= route.quality
