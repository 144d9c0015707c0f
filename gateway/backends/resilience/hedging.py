"""Hedging: if a stream is slow to begin, a second call starts; the first to begin is served, the other cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from gateway.backends.attempts import HEDGE, Attempts, CallContext, together
from gateway.backends.relay import Relayed, Whole
from gateway.domain.backend import Backend
from gateway.domain.routing.route import Route
from gateway.errors import BackendRefused, DeadlineExceeded, GatewayError, LedgerUnavailable

_MOST_SAVED = 5.0
"""Second attempts that a quiet team may have saved up."""
_FINAL = (BackendRefused, DeadlineExceeded, LedgerUnavailable)
"""What no other backend can help with."""


class Hedges:
    """Per worker. What each team's streams have earned of second attempts is known here."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._earned: dict[str, float] = {}

    async def answer(self, route: Route, call_context: CallContext) -> Relayed | Whole:
        """As `Attempts.first_of`, with a second attempt once 95 % of the first backend's streams would have begun.

        Each stream earns the policy's `share` of a second attempt, and one costs 1; so they stay below that share.
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
        """May a second attempt begin now?"""
        earned = self._earned[team] >= 1
        self._earned[team] -= earned
        return earned


class _Race:
    """One request's first attempt and, if need be, its second."""

    def __init__(self, attempts: Attempts, call_context: CallContext, spend: Callable[[], bool]) -> None:
        self._attempts, self._call_context, self._spend = attempts, call_context, spend
        self._won: Relayed | Whole | None = None
        self._begun: list[tuple[CallContext, Relayed | Whole]] = []
        self._errors: list[GatewayError] = []

    async def run(self, route: Route, slow_after_s: float) -> Relayed | Whole:
        """The first answer that begins; the other attempt is left, and closed in the books as a hedge."""
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
        """Until one has begun, or both have failed → whom that was."""
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
        """Those that stand by, unless they could not do better."""
        final = next((error for error in self._errors if isinstance(error, _FINAL)), None)
        if final is not None or not backends:
            raise final or together(self._errors)
        return await self._attempts.first_of(backends, self._call_context)

    def _spare(self, route: Route) -> Backend | None:
        """Whom to ask beside the first: the next one that can take it now, else the same one again."""
        for backend in (*route.backends[1:], route.backends[0]):
            if _as_good(backend, route) and self._attempts.health(backend).state().available:
                return backend
        return None


def _as_good(backend: Backend, route: Route) -> bool:
    """May it serve though the first one is well? Others stand by for when it fails, and a slow answer is no failure."""
    if route.reference is None or backend.model == route.backends[0].model:
        return True
    if route.observed is not None:
        return False
    if backend is route.reference:
        return True
    adequacy = next((each.adequacy for each in route.considered if each.backend == backend.name), None)
    return adequacy is not None and route.quality is not None and adequacy >= route.quality
