"""Answers bought behind the client's back, to see whether what was served instead was as good."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from gateway.domain.protocols import Fresh
from gateway.domain.record import Record, new_request_id
from gateway.domain.request import CompletionRequest
from gateway.domain.tenant import Tenant
from gateway.errors import GatewayError
from gateway.pipeline import Reply

log = logging.getLogger(__name__)

KIND = "shadow"
"""Of the ledger's rows."""
DEADLINE_S = 120.0

_DAY_S = 86_400.0
_PICO = 10**12

Serve = Callable[[CompletionRequest, Tenant, Record, float], Awaitable[Reply]]


class Cap(Protocol):
    """How much comparing may cost."""

    def allows(self, tenant: Tenant) -> bool: ...

    def spent(self, tenant: Tenant, pico: int) -> None: ...


class DailyCap:
    """So many dollars in 24 hours, of all tenants, in this worker."""

    def __init__(self, usd: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_pico, self._clock = int(usd * _PICO), clock
        self._began, self._spent = clock(), 0

    def allows(self, tenant: Tenant) -> bool:
        if self._clock() - self._began >= _DAY_S:
            self._began, self._spent = self._clock(), 0
        return self._spent < self._limit_pico

    def spent(self, tenant: Tenant, pico: int) -> None:
        self._spent += pico


class Shadows:
    """Implements `Shadow` of domain/protocols.py: the pipeline itself is asked, so that limits, budgets and ledger hold
    for these requests as for all others; they wait where others are waiting."""

    def __init__(self, serve: Serve, cap: Cap) -> None:
        self._serve, self._cap = serve, cap
        self._counts = {"asked": 0, "capped": 0, "failed": 0}

    async def ask(self, request: CompletionRequest, tenant: Tenant) -> Fresh | None:
        if not self._cap.allows(tenant):
            self._counts["capped"] += 1
            return None
        controls = replace(request.controls, cache="bypass", priority="batch", session="")
        asked = replace(request, id=new_request_id(), controls=controls)
        record = Record(asked.id, tenant, asked.model, asked.dialect, asked.stream, kind=KIND)
        record.tags.update(controls.tags)
        self._counts["asked"] += 1
        try:
            deadline = asyncio.get_running_loop().time() + DEADLINE_S
            async with await self._serve(asked, tenant, record, deadline) as reply:
                async for _ in reply:
                    pass
                completion = reply.answer.completion() if reply.answer.finish == "stop" else None
        except GatewayError as error:
            log.debug("nothing to compare a cached answer with: %s", error)
            completion = None
        finally:
            self._cap.spent(tenant, record.cost_pico or 0)
        if completion is None:
            self._counts["failed"] += 1
            return None
        return Fresh(completion, record.cost_pico)

    def stats(self) -> dict[str, int | float | str]:
        return {f"shadow_{name}": count for name, count in self._counts.items()}
